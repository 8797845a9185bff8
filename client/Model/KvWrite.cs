using KvCluster.V1;

namespace KvCluster.Client;

/// <summary>
/// Operations on keys of one shard, with conditions, applied atomically. Fill it and then pass it to <see cref="KvClient.WriteAsync"/> or
/// <see cref="KvClient.TryWriteAsync"/>. Not thread-safe. At
/// most 16 MiB and 10,000 operations.
/// </summary>
public sealed class KvWrite
{
    /// <summary>Creates an empty write.</summary>
    public KvWrite() => Operations = new KvOperations(Message.Operations);

    internal WriteRequest Message { get; } = new();

    internal bool ReturnsPresentValue { get; private set; }

    /// <summary>The operations. Those that read, and increments and sequences, need <see cref="WithResults"/>.</summary>
    public KvOperations Operations { get; }

    /// <summary>Number of operations added.</summary>
    public int Count => Operations.Count;

    /// <summary>Adds a condition, which must name its key.</summary>
    public KvWrite If(KvCondition condition)
    {
        ArgumentNullException.ThrowIfNull(condition);
        Message.Conditions.Add(condition.Message);
        return this;
    }

    /// <summary>
    /// Adds a put. The memory must not change until the write is answered. What ended the key besides a delete goes with the old value, unless the options keep
    /// it.
    /// </summary>
    /// <inheritdoc cref="KvOperations.Put" path="/param"/>
    /// <exception cref="ArgumentException">The options have a condition, or those of a call, which are of the whole write.</exception>
    public KvWrite Put(KvKey key, KvValue value, KvPutOptions? options = null)
    {
        Operations.Put(key, value, options);
        return this;
    }

    /// <summary>Adds a delete, which also succeeds if the key does not exist.</summary>
    public KvWrite Delete(KvKey key)
    {
        Operations.Delete(key);
        return this;
    }

    /// <summary>
    /// For <see cref="KvClient.TryWriteAsync"/>: if a condition does not hold, also return the value of its key (<see cref="KvFailedCondition.Value"/>).
    /// </summary>
    public KvWrite WithPresentValue()
    {
        ReturnsPresentValue = true;
        return this;
    }

    /// <summary>Asks for a result of each operation. The write then has at most 512.</summary>
    public KvWrite WithResults()
    {
        Message.WithResults = true;
        return this;
    }
}
