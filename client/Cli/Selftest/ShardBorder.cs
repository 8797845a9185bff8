using System.Text;
using KvCluster.Client;

namespace KvCluster.Cli.Selftest;

/// <summary>
/// Two prefixes around a border of shards. No keys below one prefix can be on both sides of a border that is elsewhere, so a check of scans over borders needs
/// keys beside them. Their names have the name of the run, so they are nobody else's, and they are removed like all others.
/// </summary>
/// <param name="First">Prefix below the border.</param>
/// <param name="Second">Prefix behind the border.</param>
/// <param name="End">Behind all keys of the second prefix.</param>
internal sealed record ShardBorder(byte[] First, byte[] Second, byte[] End)
{
    private const int BordersMax = 3;

    /// <summary>A border of more bytes leaves no room for names beside it.</summary>
    private const int BytesMax = KvLimits.KeyBytesMax - 256;

    /// <summary>Of other keys between the two prefixes. A scan would read them all.</summary>
    private const int OthersMax = 1_000;

    /// <summary>Some borders of the cluster that can be used, chosen by the seed.</summary>
    public static async Task<IReadOnlyList<ShardBorder>> FindAsync(SelftestRun run, CancellationToken stop)
    {
        var status = await run.Client.Admin.GetStatusAsync(cancellationToken: stop);
        var starts = status.Nodes.SelectMany(static node => node.Replicas).Select(static replica => Convert.ToHexString(replica.Start.Span))
            .Distinct().Order(StringComparer.Ordinal).Select(Convert.FromHexString).ToArray();
        run.Random.Shuffle(starts);
        var found = new List<ShardBorder>();
        foreach (var start in starts)
        {
            if (found.Count < BordersMax && Around(start, run.Name) is { } border && await OthersAsync(border) <= OthersMax)
                found.Add(border);
        }
        return found;

        Task<long> OthersAsync(ShardBorder border) =>
            SelftestRun.RepeatAsync(() => run.Client.CountRangeAsync(new KvRange { Start = border.First, End = border.End }, cancellationToken: stop), stop);
    }

    /// <summary>The prefixes around one border; null if nothing can be below it, or names would become too long.</summary>
    /// <param name="border">First key of the second shard.</param>
    /// <param name="name">Name of the run.</param>
    public static ShardBorder? Around(ReadOnlySpan<byte> border, ReadOnlySpan<byte> name)
    {
        // No name fits directly below a key that ends with a zero byte, so such bytes are cut off.
        var below = border.TrimEnd((byte)0);
        if (below.IsEmpty || border.Length > BytesMax)
            return null;
        // The greatest character that there is, so that the keys are behind all text before the border. They are text themselves, so that kv rm can remove
        // them.
        byte[] first = [.. below[..^1], (byte)(below[^1] - 1), .. Encoding.UTF8.GetBytes("\U0010FFFF"), .. name];
        byte[] second = [.. border, (byte)'!', .. name];
        return new ShardBorder(first, second, [.. second, 0xFF]);
    }
}
