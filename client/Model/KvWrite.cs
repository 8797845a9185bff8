using KvCluster.V1;

namespace KvCluster.Client;

/// <summary>
/// Operations on keys of one shard, with conditions, applied atomically. Fill it and then pass it to <see cref="KvClient.WriteAsync"/>. Not thread-safe. At
/// most 16 MiB and 10,000 operations.
/// </summary>
public sealed class KvWrite
{
    internal WriteRequest Message { get; } = new();

    /// <summary>Number of operations added.</summary>
    public int Count => Message.Operations.Count;

    /// <summary>The first key named, by which the request is routed.</summary>
    internal ReadOnlyMemory<byte> FirstKey => Message.Operations.Count > 0
        ? KeyOf(Message.Operations[0]).Memory
        : Message.Conditions.Count > 0 ? Message.Conditions[0].Key.Memory : default;

    /// <summary>Adds a condition, which must name its key.</summary>
    public KvWrite If(KvCondition condition)
    {
        Message.Conditions.Add(condition.Message);
        return this;
    }

    /// <summary>Adds a put. The memory must not change until the write is answered.</summary>
    public KvWrite Put(ReadOnlyMemory<byte> key, ReadOnlyMemory<byte> value)
    {
        Message.Operations.Add(new Operation { Put = new PutOperation { Key = key.ToByteString(), Value = value.ToByteString() } });
        return this;
    }

    /// <summary>Adds a delete, which also succeeds if the key does not exist.</summary>
    public KvWrite Delete(ReadOnlyMemory<byte> key)
    {
        Message.Operations.Add(new Operation { Delete = new DeleteOperation { Key = key.ToByteString() } });
        return this;
    }

    /// <summary>Asks for a result of each operation. The write then has at most 512.</summary>
    public KvWrite WithResults()
    {
        Message.WithResults = true;
        return this;
    }

    private static Google.Protobuf.ByteString KeyOf(Operation operation) =>
        operation.OperationCase == Operation.OperationOneofCase.Put ? operation.Put.Key : operation.Delete.Key;
}
