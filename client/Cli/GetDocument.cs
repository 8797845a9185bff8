using KvCluster.Client;

namespace KvCluster.Cli;

/// <summary>The answer to `get` in JSON; bytes as in <see cref="EntryDocument"/>.</summary>
internal sealed record GetDocument(
    string? Key, string? KeyBase64, bool Found, string? Value, string? ValueBase64, string? Etag, uint Shard, string Position, double? AgeMs)
{
    public static GetDocument Of(ReadOnlySpan<byte> key, in GetResult result)
    {
        var entry = EntryDocument.Of(key, result.Value.Span, result.Etag);
        return result.Found
            ? new(entry.Key, entry.KeyBase64, true, entry.Value, entry.ValueBase64, entry.Etag, result.Position.Shard, result.Position.Etag.ToString(), result.Age?.TotalMilliseconds)
            : new(entry.Key, entry.KeyBase64, false, null, null, null, result.Position.Shard, result.Position.Etag.ToString(), result.Age?.TotalMilliseconds);
    }
}
