using System.Globalization;
using System.Text;
using KvCluster.Client;

namespace KvCluster.Cli.Selftest;

/// <summary>Checks of scans while others write.</summary>
internal static class ScanChecks
{
    private const int Callers = 4;
    private const int Scanners = 2;
    private const int Stable = 300;

    /// <summary>
    /// Scans over borders of shards see every key that is there all the time once and in order, whatever comes and goes beside it. Without a border that can be
    /// used, the keys are in one shard.
    /// </summary>
    public static async Task ScansAsync(SelftestRun run, IReadOnlyList<ShardBorder> borders, CancellationToken stop)
    {
        IReadOnlyList<ShardBorder> places = borders.Count > 0 ? borders : [new ShardBorder(run.Key("scan/a/"), run.Key("scan/b/"), run.Key("scan/c"))];
        foreach (var place in places)
        {
            run.PrefixesElsewhere.AddRange([place.First, place.Second]);
            var stable = Enumerable.Range(0, Stable).Select(number => Numbered(number < Stable / 2 ? place.First : place.Second, number)).ToArray();
            await LoadAsync(run, stable, stop);
            await run.ForAWhileAsync(
                Callers, (caller, random) => caller < Scanners ? ScanAsync(run, place, stable, random, stop) : ChangeAsync(run, stable, random, stop),
                places.Count);
        }
    }

    // Repeating it is harmless, because it puts the same values.
    private static async Task LoadAsync(SelftestRun run, byte[][] keys, CancellationToken stop) => await SelftestRun.RepeatAsync(
        async () =>
        {
            await using var load = run.Client.BulkLoad(SelftestRun.Patience);
            foreach (var key in keys)
                await load.AddAsync(key, "stable"u8.ToArray(), stop);
            await load.FlushAsync(stop);
            return true;
        },
        stop);

    // A key comes or goes directly behind a stable one.
    private static Task ChangeAsync(SelftestRun run, byte[][] stable, Random random, CancellationToken stop)
    {
        byte[] passing = [.. stable[random.Next(Stable)], (byte)'+'];
        var isPut = random.Next(2) == 0;
        return SelftestRun.TryAsync(() => isPut ? run.Client.PutAsync(passing, default, cancellationToken: stop).AsTask()
            : run.Client.DeleteAsync(passing, cancellationToken: stop).AsTask(), stop);
    }

    private static async Task ScanAsync(SelftestRun run, ShardBorder place, byte[][] stable, Random random, CancellationToken stop)
    {
        var (scan, from, to) = RangeOf(place, stable, random);
        scan = scan with { Reverse = random.Next(2) == 0, KeysOnly = random.Next(2) == 0, Limit = random.Next(2) == 0 ? 0 : (ulong)random.Next(1, Stable) };
        var seen = new List<KvEntry>();
        if (await SelftestRun.TryAsync(async () => seen = await run.Client.ScanAsync(scan, stop).ToListAsync(stop), stop) != true)
            return;
        var expected = stable[from..to].Select(Convert.ToHexString).ToHashSet(StringComparer.Ordinal);
        var what = $"a scan of a {(scan.Prefix.IsEmpty ? "range" : "prefix")}{(scan.Reverse ? " in reverse" : "")}";
        new ScanResult(
            what, [.. expected.Order(StringComparer.Ordinal)], seen.ConvertAll(static entry => Convert.ToHexString(entry.Key.Span)), scan.Reverse,
            (int)scan.Limit).Judge();
        foreach (var entry in seen)
        {
            var isWithin = scan.Prefix.IsEmpty ? entry.Key.Span.SequenceCompareTo(scan.Start.Span) >= 0 && entry.Key.Span.SequenceCompareTo(scan.End.Span) < 0
                : entry.Key.Span.StartsWith(scan.Prefix.Span);
            SelftestFailure.Unless(isWithin, $"{what}: keys within it were expected, and 0x{Convert.ToHexString(entry.Key.Span)} was returned");
            if (!scan.KeysOnly && expected.Contains(Convert.ToHexString(entry.Key.Span)))
                SelftestFailure.Unless(
                    entry.Value.Span.SequenceEqual("stable"u8), $"{what}: another value was returned for 0x{Convert.ToHexString(entry.Key.Span)} than was put");
        }
    }

    /// <summary>All keys, those between two of them, or those with one of the prefixes; and which of the stable keys these are.</summary>
    private static (KvScan Scan, int From, int To) RangeOf(ShardBorder place, byte[][] stable, Random random)
    {
        switch (random.Next(4))
        {
            case 0:
                return (new KvScan { Prefix = place.First }, 0, Stable / 2);
            case 1:
                return (new KvScan { Prefix = place.Second }, Stable / 2, Stable);
            case 2:
                var (from, to) = (random.Next(Stable / 2), random.Next(Stable / 2, Stable));
                return (new KvScan { Start = stable[from], End = stable[to] }, from, to);
            default:
                return (new KvScan { Start = place.First, End = place.End }, 0, Stable);
        }
    }

    private static byte[] Numbered(byte[] prefix, int number) => [.. prefix, .. Encoding.UTF8.GetBytes(number.ToString("d6", CultureInfo.InvariantCulture))];
}
