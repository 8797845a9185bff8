namespace KvCluster.Client;

/// <summary>A test on one key, evaluated just before the operations that it guards.</summary>
public sealed class KvCondition
{
    internal V1.Condition Message { get; }

    private KvCondition(V1.Condition message) => Message = message;

    /// <summary>The key exists and its value was set by the change with this etag.</summary>
    /// <param name="etag">As returned by an earlier answer.</param>
    /// <param name="key">A key other than that of the operation. If omitted, the operation's key is used (not possible in a <see cref="KvWrite"/>).</param>
    public static KvCondition EtagEquals(Etag etag, ReadOnlyMemory<byte> key = default) =>
        new(new V1.Condition { Key = key.ToByteString(), EtagEquals = new V1.Etag { Epoch = etag.Epoch, Change = etag.Change } });

    /// <summary>The key exists.</summary>
    public static KvCondition Exists(ReadOnlyMemory<byte> key = default) => new(new V1.Condition { Key = key.ToByteString(), Exists = true });

    /// <summary>The key does not exist.</summary>
    public static KvCondition Absent(ReadOnlyMemory<byte> key = default) => new(new V1.Condition { Key = key.ToByteString(), Exists = false });

    /// <summary>The key exists with exactly this value.</summary>
    public static KvCondition ValueEquals(ReadOnlyMemory<byte> value, ReadOnlyMemory<byte> key = default) =>
        new(new V1.Condition { Key = key.ToByteString(), ValueEquals = value.ToByteString() });
}
