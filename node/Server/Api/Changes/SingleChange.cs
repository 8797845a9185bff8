using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Node.Api.Changes;

/// <summary>
/// The fields of a request that does one thing, in place: of a Put, Delete, DeleteRange, Increment, Touch, SetAdd or SetRemove. All have the key, that of the
/// set, or the start of the range in field 1. Fields that may be repeated are left to other readers.
/// </summary>
internal readonly ref struct SingleChange
{
    /// <summary>Reads a request.</summary>
    /// <exception cref="MalformedMessageException">The bytes are not a valid message.</exception>
    public SingleChange(ReadOnlySpan<byte> request, in ChangeLayout layout)
    {
        ConditionsField = layout.Conditions;
        var reader = new WireReader(request);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field == PutRequest.KeyFieldNumber)
            {
                Key = reader.ReadBytes();
            }
            else if (field == layout.Value)
            {
                Value = reader.ReadBytes();
            }
            else if (field == layout.Id)
            {
                Id = reader.ReadBytes();
                HasId = true;
            }
            else if (field == layout.Number)
            {
                Number = reader.ReadUInt64();
            }
            else if (field == layout.Other)
            {
                Other = reader.ReadBytes();
            }
            else if (field == layout.Flag)
            {
                IsFlagged = reader.ReadBool();
            }
            else if (field == layout.KeepExpiry)
            {
                KeepsExpiry = reader.ReadBool();
            }
            else if (field == layout.KeepOwner)
            {
                KeepsOwner = reader.ReadBool();
            }
            else
            {
                HasConditions |= field == layout.Conditions;
                reader.Skip();
            }
        }
    }

    public ReadOnlySpan<byte> Key { get; }

    /// <summary>The value, or the end of the range.</summary>
    public ReadOnlySpan<byte> Value { get; }

    /// <summary>The time to live of a Put or Touch, or what an Increment adds, in the form of a varint.</summary>
    public ulong? Number { get; }

    /// <summary>The owner of a key, or the prefix of a range.</summary>
    public ReadOnlySpan<byte> Other { get; }

    /// <summary>Whether a Put appends a number, a DeleteRange may remove all keys, or a SetRemove removes all members.</summary>
    public bool IsFlagged { get; }

    /// <summary>Whether a Put keeps the key's expiry.</summary>
    public bool KeepsExpiry { get; }

    /// <summary>Whether a Put keeps the key's owner.</summary>
    public bool KeepsOwner { get; }

    /// <summary>The encoded RequestId, if <see cref="HasId"/>.</summary>
    public ReadOnlySpan<byte> Id { get; }

    public bool HasId { get; }

    public bool HasConditions { get; }

    /// <summary>Number of the field of the conditions.</summary>
    public int ConditionsField { get; }
}

/// <summary>The numbers of the fields that <see cref="SingleChange"/> reads; 0 where a request does not have one.</summary>
internal readonly record struct ChangeLayout(
    int Conditions, int Id, int Value = 0, int Number = 0, int Other = 0, int Flag = 0, int KeepExpiry = 0, int KeepOwner = 0)
{
    public static readonly ChangeLayout Put = new(
        PutRequest.ConditionsFieldNumber, PutRequest.RequestIdFieldNumber, PutRequest.ValueFieldNumber, PutRequest.TtlMsFieldNumber,
        PutRequest.OwnerFieldNumber, PutRequest.SequenceFieldNumber, PutRequest.KeepExpiryFieldNumber, PutRequest.KeepOwnerFieldNumber);

    public static readonly ChangeLayout Delete = new(DeleteRequest.ConditionsFieldNumber, DeleteRequest.RequestIdFieldNumber);

    public static readonly ChangeLayout DeleteRange = new(
        DeleteRangeRequest.ConditionsFieldNumber, DeleteRangeRequest.RequestIdFieldNumber,
        DeleteRangeRequest.EndFieldNumber, Other: DeleteRangeRequest.PrefixFieldNumber, Flag: DeleteRangeRequest.AllFieldNumber);

    public static readonly ChangeLayout Increment =
        new(IncrementRequest.ConditionsFieldNumber, IncrementRequest.RequestIdFieldNumber, Number: IncrementRequest.ByFieldNumber);

    public static readonly ChangeLayout Touch =
        new(TouchRequest.ConditionsFieldNumber, TouchRequest.RequestIdFieldNumber, Number: TouchRequest.TtlMsFieldNumber);

    public static readonly ChangeLayout SetAdd = new(SetAddRequest.ConditionsFieldNumber, SetAddRequest.RequestIdFieldNumber);

    public static readonly ChangeLayout SetRemove =
        new(SetRemoveRequest.ConditionsFieldNumber, SetRemoveRequest.RequestIdFieldNumber, Flag: SetRemoveRequest.AllFieldNumber);
}
