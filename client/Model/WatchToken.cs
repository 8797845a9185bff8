using System.Buffers.Text;
using Google.Protobuf;
using KvCluster.V1;

namespace KvCluster.Client;

/// <summary>
/// The positions of a watch in all its shards as one text without meaning to callers: "w1." and the encoded positions, each with its lineage. Pure.
/// </summary>
internal static class WatchToken
{
    private const string Prefix = "w1.";

    public static string Of(IEnumerable<Position> positions) => Prefix + Base64Url.EncodeToString(new WatchRequest { After = { positions } }.ToByteArray());

    /// <exception cref="KvInvalidRequestException">The text is not a token.</exception>
    public static IReadOnlyList<Position> Parse(string token)
    {
        try
        {
            if (token.StartsWith(Prefix, StringComparison.Ordinal)
                && WatchRequest.Parser.ParseFrom(Base64Url.DecodeFromChars(token.AsSpan(Prefix.Length))) is { After: { Count: > 0 } positions }
                && positions.DistinctBy(static position => position.Shard).Count() == positions.Count)
                return positions;
        }
        catch (Exception failure) when (failure is FormatException or InvalidProtocolBufferException)
        {
            throw Invalid(failure);
        }
        throw Invalid(null);
    }

    private static KvInvalidRequestException Invalid(Exception? cause) =>
        new(KvReasons.BadRequest, $"The resume token of the watch is damaged or of another program{(cause is null ? "" : $" ({cause.GetType().Name})")}; "
            + "nothing was watched. Pass a token as a watch has returned it, or watch anew.");
}
