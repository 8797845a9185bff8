using System.Diagnostics;
using System.Globalization;
using System.Text;
using KvCluster.Client;

namespace KvCluster.Cli.Selftest;

/// <summary>Checks with several callers side by side, which also hold while leaders change.</summary>
internal static class ConcurrentChecks
{
    private const int Callers = 8;
    private const int Registers = 5;
    private const int Stable = 300;
    private const int BordersMax = 3;
    private static readonly TimeSpan TimeToLive = TimeSpan.FromSeconds(2);

    /// <summary>Half of the callers put, half read a few keys. What they see is linearizable.</summary>
    public static async Task ReadsAsync(SelftestRun run, CancellationToken stop)
    {
        var history = new RegisterHistory();
        await run.ForAWhileAsync(Callers, async (caller, random) =>
        {
            var name = $"register/{random.Next(Registers)}";
            var began = Stopwatch.GetTimestamp();
            if (caller % 2 == 0)
            {
                var value = string.Create(CultureInfo.InvariantCulture, $"{caller}-{random.NextInt64():x}");
                Etag? etag = null;
                var isMade = await SelftestRun.TryAsync(async () => etag = (await run.Client.PutAsync(run.Key(name), Encoding.UTF8.GetBytes(value), cancellationToken: stop)).Etag, stop);
                if (isMade != false)
                    history.Put(name, value, began, Stopwatch.GetTimestamp(), etag);
                return;
            }
            var read = default(GetResult);
            if (await SelftestRun.TryAsync(async () => read = await run.Client.GetAsync(run.Key(name), stop), stop) == true && read.Found)
                history.Read(name, Encoding.UTF8.GetString(read.Value.Span), began, Stopwatch.GetTimestamp(), read.Etag);
        });
        SelftestFailure.Unless(history.Count > 0, $"no call was answered");
        history.Judge();
    }

    /// <summary>Increments of one key by several callers add up to what they were told, each applied once however often it was sent.</summary>
    public static async Task ExactlyOnceAsync(SelftestRun run, CancellationToken stop)
    {
        var (made, unknown) = (0L, 0L);
        await run.ForAWhileAsync(Callers, async (_, _) =>
        {
            var isMade = await SelftestRun.TryAsync(() => run.Client.IncrementAsync(run.Key("counter"), cancellationToken: stop).AsTask(), stop);
            Interlocked.Add(ref made, isMade == true ? 1 : 0);
            Interlocked.Add(ref unknown, isMade is null ? 1 : 0);
        });
        var number = (await SelftestRun.RepeatAsync(() => run.Client.IncrementAsync(run.Key("counter"), 0, cancellationToken: stop).AsTask(), stop)).Number;
        SelftestFailure.Unless(number >= made && number <= made + unknown, $"{made} increments were answered and {unknown} have an unknown outcome, and the number is {number}");
    }

    /// <summary>Scans over borders of shards see every key that is there all the time once and in order, whatever comes and goes beside it.</summary>
    public static async Task ScansAsync(SelftestRun run, IReadOnlyList<byte[]> borders, CancellationToken stop)
    {
        // Without a border within the cluster, the keys are in one shard.
        foreach (var (first, second, end) in borders.Count == 0 ? [(run.Key("scan/a/"), run.Key("scan/b/"), run.Key("scan/c"))] : borders.Take(BordersMax).Select(border => Around(run, border)))
        {
            run.ToRemove.AddRange([first, second]);
            var stable = Enumerable.Range(0, Stable).Select(number => Numbered(number < Stable / 2 ? first : second, number)).ToArray();
            await using (var load = run.Client.BulkLoad(TimeSpan.FromSeconds(90)))
            {
                foreach (var key in stable)
                    await load.AddAsync(key, "stable"u8.ToArray(), stop);
                await load.FlushAsync(stop);
            }
            await run.ForAWhileAsync(Callers / 2, async (caller, random) =>
            {
                if (caller > 0)
                {
                    var passing = Numbered(random.Next(2) == 0 ? first : second, random.Next(Stable)).Append((byte)'+').ToArray();
                    await SelftestRun.TryAsync(() => random.Next(2) == 0 ? run.Client.PutAsync(passing, default, cancellationToken: stop).AsTask() : run.Client.DeleteAsync(passing, cancellationToken: stop).AsTask(), stop);
                    return;
                }
                var scan = new KvScan { Start = first, End = end, Reverse = random.Next(2) == 0, KeysOnly = random.Next(2) == 0 };
                var seen = new List<KvEntry>();
                if (await SelftestRun.TryAsync(async () => seen = await run.Client.ScanAsync(scan, stop).ToListAsync(stop), stop) != true)
                    return;
                var keys = seen.ConvertAll(static entry => Convert.ToHexString(entry.Key.Span));
                if (scan.Reverse)
                    keys.Reverse();
                SelftestFailure.Unless(keys.SequenceEqual(keys.Order(StringComparer.Ordinal).Distinct()), $"a scan{(scan.Reverse ? " in reverse" : "")} returned keys twice or out of order");
                var missing = stable.Select(Convert.ToHexString).Except(keys).Count();
                SelftestFailure.Unless(missing == 0, $"a scan{(scan.Reverse ? " in reverse" : "")} did not return {missing} of {stable.Length} keys that were there all the time");
                if (scan.KeysOnly)
                    return;
                SelftestFailure.Unless(seen.All(static entry => entry.Value.IsEmpty || entry.Value.Span.SequenceEqual("stable"u8)), $"a scan returned values that nobody put");
            });
        }
    }

    /// <summary>A watch tells of every answered put once, those of a key in order, also while leaders change.</summary>
    public static async Task WatchAsync(SelftestRun run, CancellationToken stop)
    {
        var history = new WatchHistory();
        using var ended = CancellationTokenSource.CreateLinkedTokenSource(stop);
        var begun = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        var watching = FollowAsync();
        await Task.WhenAny(begun.Task, watching);
        await run.ForAWhileAsync(Callers, async (caller, random) =>
        {
            var (name, value) = ($"watch/{random.Next(20)}", string.Create(CultureInfo.InvariantCulture, $"{caller}-{random.NextInt64():x}"));
            history.Sent(value);
            var etag = Etag.None;
            if (await SelftestRun.TryAsync(async () => etag = (await run.Client.PutAsync(run.Key(name), Encoding.UTF8.GetBytes(value), cancellationToken: stop)).Etag, stop) == true)
                history.Answered(name, value, etag);
        });
        await SelftestRun.UntilAsync(() => history.Missing == 0 || history.Mistake is not null || watching.IsCompleted, () => $"the watch did not tell of {history.Missing} of {history.Count} puts", stop);
        await ended.CancelAsync();
        try
        {
            await watching;
        }
        catch (OperationCanceledException) when (!stop.IsCancellationRequested)
        {
            // It goes on until it is cancelled.
        }
        history.Judge();

        async Task FollowAsync()
        {
            await foreach (var message in run.Client.WatchAsync(new KvWatch { Prefix = run.Key("watch/") }, ended.Token))
            {
                foreach (var change in message.Events)
                    history.Told(Encoding.UTF8.GetString(change.Key.Span)[run.Prefix.Length..], Encoding.UTF8.GetString(change.Value.Span), change.Etag);
                begun.TrySetResult();
            }
        }
    }

    /// <summary>A key with a time to live is there for so long, then it goes by itself, and a watch says why.</summary>
    public static async Task ExpiryAsync(SelftestRun run, CancellationToken stop)
    {
        var key = run.Key("expiring");
        var touched = run.Key("touched");
        using var ended = CancellationTokenSource.CreateLinkedTokenSource(stop);
        var began = Stopwatch.GetTimestamp();
        await SelftestRun.RepeatAsync(
            async () =>
            {
                began = Stopwatch.GetTimestamp();
                await run.Client.PutAsync(touched, "v"u8.ToArray(), new KvPutOptions { TimeToLive = TimeToLive }, stop);
                return await run.Client.PutAsync(key, "v"u8.ToArray(), new KvPutOptions { TimeToLive = TimeToLive }, stop);
            },
            stop);
        await SelftestRun.RepeatAsync(() => run.Client.TouchAsync(touched, null, cancellationToken: stop).AsTask(), stop);
        var watching = ExpiredAsync();
        for (var isThere = true; isThere;)
        {
            isThere = (await SelftestRun.RepeatAsync(() => run.Client.GetAsync(key, stop).AsTask(), stop)).Found;
            var age = Stopwatch.GetElapsedTime(began);
            // Clocks may differ by a little.
            SelftestFailure.Unless(isThere || age >= TimeToLive * 0.98, $"a key with a time to live of {TimeToLive.TotalSeconds} s was gone after {age.TotalSeconds:F2} s");
            SelftestFailure.Unless(!isThere || age < TimeSpan.FromMinutes(3), $"a key with a time to live of {TimeToLive.TotalSeconds} s is there after {age.TotalSeconds:F0} s");
            await Task.Delay(20, stop);
        }
        SelftestFailure.Unless((await SelftestRun.RepeatAsync(() => run.Client.GetAsync(touched, stop).AsTask(), stop)).Found, $"a key whose time to live was taken away is gone");
        await SelftestRun.UntilAsync(() => watching.IsCompleted, static () => "the watch did not tell of the end of a key", stop);
        await ended.CancelAsync();
        SelftestFailure.Unless(await watching == KvEventReason.Expired, $"the watch told of the end of an expired key with the reason {await watching}");

        async Task<KvEventReason> ExpiredAsync()
        {
            await foreach (var message in run.Client.WatchAsync(new KvWatch { Prefix = key, IsOneKey = true, Initial = true }, ended.Token))
            {
                if (message.Events.FirstOrDefault(static change => change.Kind == KvEventKind.Delete) is { } end)
                    return end.Reason;
            }
            return KvEventReason.Unknown;
        }
    }

    /// <summary>Prefixes on the two sides of a border, between which nobody else has keys, and the end behind the second.</summary>
    private static (byte[] First, byte[] Second, byte[] End) Around(SelftestRun run, byte[] border)
    {
        // The last byte is one less, and 0xFF follows: behind every key of text that is below the border.
        byte[] first = border[^1] == 0 ? border[..^1] : [.. border[..^1], (byte)(border[^1] - 1), 0xFF];
        byte[] second = [.. border, 0];
        return ([.. first, .. run.Name], [.. second, .. run.Name], [.. second, .. run.Name, 0xFF]);
    }

    private static byte[] Numbered(byte[] prefix, int number) => [.. prefix, .. Encoding.UTF8.GetBytes(number.ToString("d6", CultureInfo.InvariantCulture))];
}
