using KvCluster.Storage.Transactions;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Node.Api.Changes;

/// <summary>The fields of an encoded <see cref="Condition"/>, in place. If several members of the oneof are present, the last one counts.</summary>
internal readonly ref struct ConditionFields
{
    /// <summary>Reads a condition.</summary>
    /// <exception cref="MalformedMessageException">The bytes are not a valid message.</exception>
    public ConditionFields(ReadOnlySpan<byte> condition)
    {
        var reader = new WireReader(condition);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field == Condition.KeyFieldNumber)
            {
                Key = reader.ReadBytes();
                HasKey = true;
                continue;
            }
            if (field is >= Condition.EtagEqualsFieldNumber and <= Condition.SetLacksFieldNumber)
            {
                Test = (Condition.TestOneofCase)field;
                Value = End = default;
                (Etag, Relation, Keys, Greatest) = (default, default, null, null);
            }
            switch (field)
            {
                case Condition.EtagEqualsFieldNumber:
                    Etag = reader.ReadEtag();
                    break;
                case Condition.ExistsFieldNumber:
                    Exists = reader.ReadBool();
                    break;
                case Condition.ValueEqualsFieldNumber or Condition.SetHasFieldNumber or Condition.SetLacksFieldNumber:
                    Value = reader.ReadBytes();
                    break;
                case Condition.EtagFieldNumber:
                    (Relation, Etag) = ReadEtagComparison(reader.ReadBytes());
                    break;
                case Condition.ValueFieldNumber:
                    Relation = ReadValueComparison(reader.ReadBytes(), out var value);
                    Value = value;
                    break;
                case Condition.RangeFieldNumber:
                    (Keys, Greatest) = ReadRange(reader.ReadBytes(), out var end);
                    End = end;
                    break;
                default:
                    reader.Skip();
                    break;
            }
        }
    }

    public Condition.TestOneofCase Test { get; }

    /// <summary>The key, that of the set, or the start of the range.</summary>
    public ReadOnlySpan<byte> Key { get; }

    public bool HasKey { get; }

    public bool Exists { get; }

    public Etag Etag { get; }

    /// <summary>The value, or the member of the set.</summary>
    public ReadOnlySpan<byte> Value { get; }

    public ConditionRelation Relation { get; }

    /// <summary>The end of the range.</summary>
    public ReadOnlySpan<byte> End { get; }

    /// <summary>How many keys the range has; null if any number will do.</summary>
    public ulong? Keys { get; }

    /// <summary>The greatest etag of the range; null if any will do.</summary>
    public Etag? Greatest { get; }

    public bool HasRelation => Test is Condition.TestOneofCase.Etag or Condition.TestOneofCase.Value;

    public bool IsRelationKnown => Relation is >= ConditionRelation.Equal and <= ConditionRelation.Greater;

    public bool IsOfSet => Test is Condition.TestOneofCase.SetHas or Condition.TestOneofCase.SetLacks;

    private static (ConditionRelation Relation, Etag Etag) ReadEtagComparison(ReadOnlySpan<byte> comparison)
    {
        var (relation, etag) = (default(ConditionRelation), Etag.None);
        var reader = new WireReader(comparison);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field == EtagComparison.RelationFieldNumber)
                relation = ReadRelation(ref reader);
            else if (field == EtagComparison.EtagFieldNumber)
                etag = reader.ReadEtag();
            else
                reader.Skip();
        }
        return (relation, etag);
    }

    private static ConditionRelation ReadValueComparison(ReadOnlySpan<byte> comparison, out ReadOnlySpan<byte> value)
    {
        var relation = default(ConditionRelation);
        value = default;
        var reader = new WireReader(comparison);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field == ValueComparison.RelationFieldNumber)
                relation = ReadRelation(ref reader);
            else if (field == ValueComparison.ValueFieldNumber)
                value = reader.ReadBytes();
            else
                reader.Skip();
        }
        return relation;
    }

    // The numbers are those of the contract.
    private static ConditionRelation ReadRelation(ref WireReader reader) =>
        reader.ReadUInt64() is <= (ulong)V1.Relation.Greater and var relation ? (ConditionRelation)relation : default;

    private static (ulong? Keys, Etag? Greatest) ReadRange(ReadOnlySpan<byte> range, out ReadOnlySpan<byte> end)
    {
        (ulong? Keys, Etag? Greatest) told = default;
        end = default;
        var reader = new WireReader(range);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field == RangeCondition.EndFieldNumber)
                end = reader.ReadBytes();
            else if (field == RangeCondition.KeysFieldNumber)
                told.Keys = reader.ReadUInt64();
            else if (field == RangeCondition.EtagGreatestFieldNumber)
                told.Greatest = reader.ReadEtag();
            else
                reader.Skip();
        }
        return told;
    }
}
