using KvCluster.V1;

namespace KvCluster.Wire;

/// <summary>A call of an exchange, read in place from its message by node and router. Nothing is allocated for a call that finds no place.</summary>
internal readonly ref struct CallHead
{
    public ulong Id { get; private init; }

    public Method Method { get; private init; }

    /// <summary>The encoded request message.</summary>
    public ReadOnlySpan<byte> Request { get; private init; }

    public ShardId Shard { get; private init; }

    public ulong Generation { get; private init; }

    public uint TimeoutMs { get; private init; }

    public ReadOnlySpan<byte> Traceparent { get; private init; }

    public uint ReplyBytesMax { get; private init; }

    /// <exception cref="MalformedMessageException">The bytes are not a call.</exception>
    public static CallHead Read(ReadOnlySpan<byte> call)
    {
        ulong id = 0, generation = 0;
        uint shard = 0, timeoutMs = 0, replyBytesMax = 0;
        var method = Method.Unspecified;
        ReadOnlySpan<byte> request = default, traceparent = default;
        var reader = new WireReader(call);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            switch (field)
            {
                case Call.IdFieldNumber: id = reader.ReadUInt64(); break;
                case Call.MethodFieldNumber: method = (Method)reader.ReadUInt32(); break;
                case Call.RequestFieldNumber: request = reader.ReadBytes(); break;
                case Call.ShardFieldNumber: shard = reader.ReadUInt32(); break;
                case Call.GenerationFieldNumber: generation = reader.ReadUInt64(); break;
                case Call.TimeoutMsFieldNumber: timeoutMs = reader.ReadUInt32(); break;
                case Call.TraceparentFieldNumber: traceparent = reader.ReadBytes(); break;
                case Call.ReplyBytesMaxFieldNumber: replyBytesMax = reader.ReadUInt32(); break;
                default: reader.Skip(); break;
            }
        }
        return new CallHead
        {
            Id = id, Method = method, Request = request, Shard = new(shard), Generation = generation,
            TimeoutMs = timeoutMs, Traceparent = traceparent, ReplyBytesMax = replyBytesMax,
        };
    }
}
