using KvCluster.Storage.Encoding;
using KvCluster.Wire;

namespace KvCluster.Node.Api.Reads;

/// <summary>
/// The field of a key's <see cref="V1.Life"/> in an answer: nothing if it was not asked for, or if only a delete ends the key. Pure; any thread.
/// </summary>
/// <param name="Life">What the key has.</param>
/// <param name="NowMs">The shard's time at the moment of the answer.</param>
internal readonly record struct LifeField(KeyLife Life, ulong NowMs)
{
    /// <summary>The life of a key. <paramref name="nowMs"/>: null if it was not asked for.</summary>
    public static LifeField Of(in KeyLife life, ulong? nowMs) => nowMs is { } now ? new LifeField(life, now) : default;

    /// <summary>Bytes of the field, with its tag.</summary>
    public int Size => Life.IsUnlimited ? 0 : WireWriter.BytesFieldSize(MessageBytes);

    private int MessageBytes => (Life.ExpiryMilliseconds == 0 ? 0 : WireWriter.OptionalVarintFieldSize(LeftMs))
        + (Life.Owner == Etag.None ? 0 : WireWriter.BytesFieldSize(WireWriter.EtagBytes));

    private ulong LeftMs => Life.ExpiryMilliseconds > NowMs ? Life.ExpiryMilliseconds - NowMs : 0;

    /// <summary>Writes the field.</summary>
    public void WriteTo(ref WireWriter writer, int field)
    {
        if (Life.IsUnlimited)
            return;
        writer.BytesHeader(field, MessageBytes);
        if (Life.ExpiryMilliseconds != 0)
            writer.OptionalVarintField(V1.Life.LeftMsFieldNumber, LeftMs);
        if (Life.Owner != Etag.None)
            writer.EtagField(V1.Life.OwnerFieldNumber, Life.Owner);
    }
}
