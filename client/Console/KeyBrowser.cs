using KvCluster.Client;

namespace KvCluster.AdminConsole;

/// <summary>Lists, reads and changes keys for the page. A change applies only to the value that was seen. Any thread.</summary>
internal sealed class KeyBrowser(KvClient client)
{
    /// <summary>The maximum number of rows on a page.</summary>
    public const int RowsMax = 200;

    /// <summary>The rest of a longer value is not shown, and it cannot be edited then.</summary>
    public const int ValueBytesShown = 256 << 10;

    /// <param name="prefix">The prefix of all keys listed.</param>
    /// <param name="after">The last key of the previous page; empty for the first page.</param>
    /// <param name="limit">The number of rows.</param>
    public async Task<object> ListAsync(ReadOnlyMemory<byte> prefix, ReadOnlyMemory<byte> after, int limit, CancellationToken cancellationToken)
    {
        // The smallest key after it.
        byte[] start = after.IsEmpty ? [] : [.. after.Span, 0];
        var entries = new List<object>();
        var scan = new KvScan { Prefix = prefix, Start = start, Limit = (ulong)limit + 1, KeysOnly = true };
        await foreach (var entry in client.ScanAsync(scan, cancellationToken).ConfigureAwait(false))
            entries.Add(new { Key = entry.Key.ToArray(), Etag = entry.Etag.ToString() });
        return new { Entries = entries.Take(limit), More = entries.Count > limit };
    }

    public async Task<object> ReadAsync(ReadOnlyMemory<byte> key, CancellationToken cancellationToken)
    {
        var read = await client.GetAsync(key, new KvGetOptions { WithLife = true }, cancellationToken).ConfigureAwait(false);
        var shown = read.Value.Memory[..Math.Min(read.Value.Length, ValueBytesShown)];
        return new
        {
            read.Found,
            Value = shown.ToArray(),
            Bytes = read.Value.Length,
            Etag = read.Found ? read.Etag.ToString() : null,
            read.Position.Shard,
            LeftMs = read.Life.Left?.TotalMilliseconds,
            Owner = read.Life.Owner?.ToString(),
        };
    }

    public async Task<object> PutAsync(PutCommand put, CancellationToken cancellationToken)
    {
        var condition = put.Etag is null ? KvCondition.Absent() : KvCondition.EtagEquals(Parse(put.Etag));
        // An edit of the value keeps the key's expiry and owner.
        var options = new KvPutOptions { Condition = condition, KeepExpiry = true, KeepOwner = true };
        var saved = await client.PutAsync(put.Key, put.Value, options, cancellationToken).ConfigureAwait(false);
        return new { Etag = saved.Position.Etag.ToString() };
    }

    public async Task<object> DeleteAsync(DeleteCommand delete, CancellationToken cancellationToken)
    {
        _ = await client.DeleteAsync(delete.Key, KvCondition.EtagEquals(Parse(delete.Etag)), cancellationToken).ConfigureAwait(false);
        return new { };
    }

    private static Etag Parse(string text) => Etag.TryParse(text, null, out var etag) ? etag : throw new BadRequestException($"'{text}' is not an etag.");
}
