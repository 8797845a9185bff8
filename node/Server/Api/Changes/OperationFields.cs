using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Node.Api.Changes;

/// <summary>The fields of an encoded <see cref="Operation"/>, in place. If several members of the oneof are present, the last one counts.</summary>
internal readonly ref struct OperationFields
{
    /// <summary>Reads an operation.</summary>
    /// <exception cref="MalformedMessageException">The bytes are not a valid message.</exception>
    public OperationFields(ReadOnlySpan<byte> operation)
    {
        var content = ReadOnlySpan<byte>.Empty;
        var reader = new WireReader(operation);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field is < Operation.PutFieldNumber or > Operation.SetGetFieldNumber)
            {
                reader.Skip();
                continue;
            }
            Kind = (Operation.OperationOneofCase)field;
            content = reader.ReadBytes();
        }
        var inner = new WireReader(content);
        for (int field; (field = inner.ReadField()) != 0;)
        {
            // The key, that of the set, or the start of the range has the same number in all of them.
            if (field == KeyOperation.KeyFieldNumber)
            {
                Key = inner.ReadBytes();
                continue;
            }
            switch (Kind, field)
            {
                case (Operation.OperationOneofCase.Put, PutOperation.ValueFieldNumber):
                case (Operation.OperationOneofCase.SetAdd
                    or Operation.OperationOneofCase.SetRemove or Operation.OperationOneofCase.SetGet, SetOperation.MemberFieldNumber):
                    Value = inner.ReadBytes();
                    break;
                case (Operation.OperationOneofCase.Put, PutOperation.TtlMsFieldNumber):
                case (Operation.OperationOneofCase.Touch, TouchOperation.TtlMsFieldNumber):
                    TtlMs = inner.ReadUInt64();
                    break;
                case (Operation.OperationOneofCase.Put, PutOperation.OwnerFieldNumber):
                    Owner = inner.ReadBytes();
                    break;
                case (Operation.OperationOneofCase.Put, PutOperation.SequenceFieldNumber):
                    IsNumbered = inner.ReadBool();
                    break;
                case (Operation.OperationOneofCase.Put, PutOperation.KeepExpiryFieldNumber):
                    KeepsExpiry = inner.ReadBool();
                    break;
                case (Operation.OperationOneofCase.Put, PutOperation.KeepOwnerFieldNumber):
                    KeepsOwner = inner.ReadBool();
                    break;
                case (Operation.OperationOneofCase.Increment, IncrementOperation.ByFieldNumber):
                    By = inner.ReadSInt64();
                    break;
                case (Operation.OperationOneofCase.DeleteRange or Operation.OperationOneofCase.Scan, RangeOperation.EndFieldNumber):
                    End = inner.ReadBytes();
                    break;
                case (Operation.OperationOneofCase.Scan, RangeOperation.LimitFieldNumber):
                    Limit = inner.ReadUInt32();
                    break;
                case (Operation.OperationOneofCase.Scan, RangeOperation.KeysOnlyFieldNumber):
                    KeysOnly = inner.ReadBool();
                    break;
                default:
                    inner.Skip();
                    break;
            }
        }
    }

    /// <summary>What it does; none if that is not known.</summary>
    public Operation.OperationOneofCase Kind { get; }

    /// <summary>The key, that of the set, or the first one of the range.</summary>
    public ReadOnlySpan<byte> Key { get; }

    /// <summary>The value, or the member of the set.</summary>
    public ReadOnlySpan<byte> Value { get; }

    /// <summary>The end of the range; empty for the end of the shard.</summary>
    public ReadOnlySpan<byte> End { get; }

    /// <summary>How long the key lives; null if it does not expire.</summary>
    public ulong? TtlMs { get; }

    /// <summary>The session that owns the key; empty if none does.</summary>
    public ReadOnlySpan<byte> Owner { get; }

    /// <summary>Whether the key is a prefix to which the next number is appended.</summary>
    public bool IsNumbered { get; }

    /// <summary>Whether the key keeps its expiry.</summary>
    public bool KeepsExpiry { get; }

    /// <summary>Whether the key keeps its owner.</summary>
    public bool KeepsOwner { get; }

    /// <summary>What is added.</summary>
    public long By { get; }

    /// <summary>The most entries of a scan; 0 for the most there may be.</summary>
    public uint Limit { get; }

    /// <summary>Whether a scan omits the values.</summary>
    public bool KeysOnly { get; }

    /// <summary>Whether it can only be in a request that returns results.</summary>
    public bool NeedsResults => IsNumbered
        || Kind is Operation.OperationOneofCase.Increment
            or Operation.OperationOneofCase.Get or Operation.OperationOneofCase.Scan or Operation.OperationOneofCase.SetGet;
}
