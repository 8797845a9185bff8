using Google.Protobuf.Collections;
using KvCluster.V1;

namespace KvCluster.Client;

/// <summary>
/// A list of operations on keys and sets of one shard. A later one sees the effect of earlier ones. Memory that is passed must not change until the call is
/// answered. Not thread-safe.
/// </summary>
public sealed class KvOperations
{
    private readonly RepeatedField<Operation> _operations;

    internal KvOperations(RepeatedField<Operation> operations) => _operations = operations;

    /// <summary>Number of operations added.</summary>
    public int Count => _operations.Count;

    /// <summary>Whether none of them changes anything.</summary>
    internal bool OnlyRead => _operations.All(static operation =>
        operation.OperationCase is Operation.OperationOneofCase.Get or Operation.OperationOneofCase.Scan or Operation.OperationOneofCase.SetGet);

    /// <summary>Adds a put. What ended the key besides a delete goes with the old value, unless the options keep it.</summary>
    /// <param name="key">The key; with <see cref="KvPutOptions.Sequence"/> the prefix of the new key.</param>
    /// <param name="value">Up to 8 MiB.</param>
    /// <param name="options">What is special about the put; null: nothing.</param>
    /// <exception cref="ArgumentException">The options have a condition, or those of a call, which are of the whole list.</exception>
    public KvOperations Put(KvKey key, KvValue value, KvPutOptions? options = null)
    {
        var put = new PutOperation { Key = key.ToByteString(), Value = value.ToByteString() };
        if (options is not null)
            Set(put, options);
        return Add(new Operation { Put = put });
    }

    /// <summary>Adds a delete, which also succeeds if the key does not exist.</summary>
    public KvOperations Delete(KvKey key) => Add(new Operation { Delete = new DeleteOperation { Key = key.ToByteString() } });

    /// <summary>Adds a delete of all keys from one to another one, which stays. An empty end is that of the shard.</summary>
    public KvOperations DeleteRange(KvKey start, KvKey end) =>
        Add(new Operation { DeleteRange = new RangeOperation { Start = start.ToByteString(), End = end.ToByteString() } });

    /// <summary>Adds to a number. The result has the number afterwards.</summary>
    public KvOperations Increment(KvKey key, long by = 1) =>
        Add(new Operation { Increment = new IncrementOperation { Key = key.ToByteString(), By = by } });

    /// <summary>Adds a new expiry of a key; null means that it does not expire any more.</summary>
    public KvOperations Touch(KvKey key, TimeSpan? timeToLive)
    {
        var touch = new TouchOperation { Key = key.ToByteString() };
        if (timeToLive is { } given)
            touch.TtlMs = KvPutOptions.Milliseconds(given);
        return Add(new Operation { Touch = touch });
    }

    /// <summary>Adds a member to a set.</summary>
    public KvOperations SetAdd(KvKey key, KvKey member) => Add(new Operation { SetAdd = SetOf(key, member) });

    /// <summary>Removes a member from a set; an empty one means all members.</summary>
    public KvOperations SetRemove(KvKey key, KvKey member = default) => Add(new Operation { SetRemove = SetOf(key, member) });

    /// <summary>Reads a key.</summary>
    public KvOperations Get(KvKey key) => Add(new Operation { Get = new KeyOperation { Key = key.ToByteString() } });

    /// <summary>Reads the first entries from a key on to another one, which is not read. At most 1,000.</summary>
    public KvOperations Scan(KvKey start, KvKey end, int limit = 1_000, bool keysOnly = false) =>
        Add(new Operation { Scan = new RangeOperation { Start = start.ToByteString(), End = end.ToByteString(), Limit = (uint)limit, KeysOnly = keysOnly } });

    /// <summary>Asks whether a set has a member, and for the number of its members; an empty member asks for the number only.</summary>
    public KvOperations SetGet(KvKey key, KvKey member = default) => Add(new Operation { SetGet = SetOf(key, member) });

    private static void Set(PutOperation put, KvPutOptions options)
    {
        if (options.Condition is not null)
            throw new ArgumentException(
                "A put in a list has no condition of its own. Add the condition, with its key, to the whole write or transaction by If.", nameof(options));
        if (options.Timeout is not null || options.NoRetry || options.WithPresentValue)
            throw new ArgumentException(
                "A put in a list has no timeout of its own, is not repeated by itself, and reads nothing. Pass such options with the whole list.",
                nameof(options));
        (put.Sequence, put.KeepExpiry, put.KeepOwner) = (options.Sequence, options.KeepExpiry, options.KeepOwner);
        if (options.TimeToLive is { } timeToLive)
            put.TtlMs = KvPutOptions.Milliseconds(timeToLive);
        if (options.Owner is { } owner)
            put.Owner = owner.Id.ToByteString();
    }

    private static SetOperation SetOf(KvKey key, KvKey member) =>
        new() { Key = key.ToByteString(), Member = member.ToByteString() };

    private KvOperations Add(Operation operation)
    {
        _operations.Add(operation);
        return this;
    }
}
