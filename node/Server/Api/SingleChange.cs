using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Node.Api;

/// <summary>The fields of a <see cref="PutRequest"/> or a <see cref="DeleteRequest"/>, in place. Both have the key in field 1.</summary>
internal readonly ref struct SingleChange
{
    /// <summary>Reads a request.</summary>
    /// <param name="valueField">Number of the value's field; 0 if the request has none.</param>
    /// <exception cref="MalformedMessageException">The bytes are not a valid message.</exception>
    public SingleChange(ReadOnlySpan<byte> request, int valueField, int conditionsField, int idField)
    {
        ConditionsField = conditionsField;
        var reader = new WireReader(request);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field == PutRequest.KeyFieldNumber)
            {
                Key = reader.ReadBytes();
            }
            else if (field == valueField)
            {
                Value = reader.ReadBytes();
            }
            else if (field == idField)
            {
                Id = reader.ReadBytes();
                HasId = true;
            }
            else
            {
                HasConditions |= field == conditionsField;
                reader.Skip();
            }
        }
    }

    public ReadOnlySpan<byte> Key { get; }

    public ReadOnlySpan<byte> Value { get; }

    /// <summary>The encoded RequestId, if <see cref="HasId"/>.</summary>
    public ReadOnlySpan<byte> Id { get; }

    public bool HasId { get; }

    public bool HasConditions { get; }

    /// <summary>Number of the field of the conditions.</summary>
    public int ConditionsField { get; }
}
