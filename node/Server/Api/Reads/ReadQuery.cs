using KvCluster.Node.Api.Errors;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Node.Api.Reads;

/// <summary>What a read asks for besides its keys: <see cref="ReadOptions"/>, as far as one shard is concerned.</summary>
/// <param name="Mode">How new the answer must be.</param>
/// <param name="Seen">In mode SESSION, the etag that the answer must reflect.</param>
internal readonly record struct ReadQuery(ReadMode Mode, Etag Seen)
{
    /// <summary>Reads the mode from encoded options. Null on success.</summary>
    /// <param name="options">The encoded message; empty: none.</param>
    /// <param name="query">The result, not yet for a particular shard.</param>
    /// <exception cref="MalformedMessageException">The bytes are not a valid message.</exception>
    public static ApiError? TryRead(ReadOnlySpan<byte> options, out ReadQuery query)
    {
        var mode = ReadMode.Unspecified;
        var reader = new WireReader(options);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field == ReadOptions.ModeFieldNumber)
                mode = (ReadMode)reader.ReadUInt32();
            else
                reader.Skip();
        }
        query = new ReadQuery(mode == ReadMode.Unspecified ? ReadMode.Leader : mode, Etag.None);
        return mode is >= ReadMode.Unspecified and <= ReadMode.Stale ? null : ApiErrors.BadRequest("The read mode is unknown.");
    }

    /// <summary>The same query with what the options say of one shard. Null on success.</summary>
    /// <param name="shard">The shard.</param>
    /// <param name="options">The encoded message; empty: none.</param>
    /// <param name="query">The result.</param>
    /// <exception cref="MalformedMessageException">The bytes are not a valid message.</exception>
    public ApiError? TryIn(LineageShard shard, ReadOnlySpan<byte> options, out ReadQuery query)
    {
        query = this;
        if (Mode != ReadMode.Session)
            return null;
        var seen = Etag.None;
        var reader = new WireReader(options);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field != ReadOptions.SeenFieldNumber)
            {
                reader.Skip();
                continue;
            }
            if (ReadPosition(reader.ReadBytes()) is var (ofShard, etag, lineage) && ofShard != shard.Shard)
                continue;
            // Whatever the etag is: those of another history are not comparable.
            if (lineage != 0 && lineage != shard.Lineage)
                return ApiErrors.LineageChanged(isIdentifiedChange: false);
            seen = Etag.Max(seen, etag);
        }
        query = new ReadQuery(Mode, seen);
        return null;
    }

    /// <summary>Reads an encoded <see cref="Position"/>.</summary>
    /// <param name="position">The encoded message.</param>
    /// <exception cref="MalformedMessageException">The bytes are not a valid message.</exception>
    public static (ShardId Shard, Etag Etag, ulong Lineage) ReadPosition(ReadOnlySpan<byte> position)
    {
        var (shard, etag, lineage) = (default(ShardId), Etag.None, 0ul);
        var reader = new WireReader(position);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            switch (field)
            {
                case Position.ShardFieldNumber: shard = new(reader.ReadUInt32()); break;
                case Position.EtagFieldNumber: etag = reader.ReadEtag(); break;
                case Position.LineageFieldNumber: lineage = reader.ReadFixed64(); break;
                default: reader.Skip(); break;
            }
        }
        return (shard, etag, lineage);
    }
}
