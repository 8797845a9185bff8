using KvCluster.V1;

namespace KvCluster.Client;

/// <summary>
/// Conditions on keys of one shard, and two lists of operations, of which one is applied, atomically. Fill it and then pass it to
/// <see cref="KvClient.TransactAsync"/>. Not thread-safe. A list has at most 512 operations.
/// </summary>
public sealed class KvTransaction
{
    /// <summary>Creates an empty transaction.</summary>
    public KvTransaction() => (Then, Else) = (new KvOperations(Message.Success), new KvOperations(Message.Failure));

    internal TransactRequest Message { get; } = new();

    /// <summary>Applied if all conditions hold.</summary>
    public KvOperations Then { get; }

    /// <summary>Applied if one does not.</summary>
    public KvOperations Else { get; }

    /// <summary>Adds a condition, which must name its key.</summary>
    public KvTransaction If(KvCondition condition)
    {
        ArgumentNullException.ThrowIfNull(condition);
        Message.Conditions.Add(condition.Message);
        return this;
    }
}
