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
    private const int LastAttemptsMax = 100;

    /// <summary>How long the keys of <see cref="ExpiryAsync"/> live.</summary>
    internal static readonly TimeSpan TimeToLive = TimeSpan.FromSeconds(2);

    /// <summary>
    /// The cluster counts lives no faster than real time. By this machine's clock, which may be slower than that by a thousandth, a key may end so much early.
    /// </summary>
    private static readonly TimeSpan AgeMin = TimeToLive * 0.999;

    /// <summary>A key ends late by the time without a leader, and elections and busy machines take some; but it does not stay for minutes.</summary>
    private static readonly TimeSpan ExpiryLimit = TimeSpan.FromMinutes(3);

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
                var isMade = await SelftestRun.TryAsync(
                    async () => etag = (await run.Client.PutAsync(run.Key(name), Encoding.UTF8.GetBytes(value), cancellationToken: stop)).Etag, stop);
                if (isMade != false)
                    history.Put(name, value, began, Stopwatch.GetTimestamp(), etag);
                return;
            }
            var read = default(GetResult);
            if (await SelftestRun.TryAsync(async () => read = await run.Client.GetAsync(run.Key(name), cancellationToken: stop), stop) != true)
                return;
            var ended = Stopwatch.GetTimestamp();
            if (read.Found)
                history.Read(name, Encoding.UTF8.GetString(read.Value.Span), began, ended, read.Etag);
            else
                history.ReadNothing(name, began, ended);
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
        SelftestFailure.Unless(
            number >= made && number <= made + unknown, $"{made} increments were answered and {unknown} have an unknown outcome, and the number is {number}");
    }

    /// <summary>A watch tells of every answered change once, those of a key in order, also while leaders change.</summary>
    public static async Task WatchAsync(SelftestRun run, CancellationToken stop)
    {
        const string Last = "watch/last";
        var history = new WatchHistory();
        await using var watch = new FollowedWatch(
            run.Client,
            new KvWatch { Prefix = run.Key("watch/") },
            change => history.Told(Encoding.UTF8.GetString(change.Key.Span)[run.Prefix.Length..], ValueOf(change), change.Etag),
            stop);
        await watch.BegunAsync();
        await run.ForAWhileAsync(Callers, (caller, random) => ChangeAsync(
            $"watch/{random.Next(20)}",
            random.Next(5) == 0 ? WatchHistory.Deleted : string.Create(CultureInfo.InvariantCulture, $"{caller}-{random.NextInt64():x}")));
        // When the watch reports this change, it has reported or omitted all changes before it.
        for (var attempt = 0; !await ChangeAsync(Last, string.Create(CultureInfo.InvariantCulture, $"last-{attempt}")); attempt++)
            SelftestFailure.Unless(attempt < LastAttemptsMax, $"a put was expected to be answered, and {LastAttemptsMax} were not");
        await SelftestRun.UntilAsync(
            () => history.HasTold(Last) || history.Mistake is not null || watch.HasFailed,
            () => $"the watch did not tell of {history.Missing} of {history.Count} changes", stop);
        await watch.EndAsync();
        history.Judge();

        async Task<bool> ChangeAsync(string name, string value)
        {
            history.Sent(value);
            var etag = Etag.None;
            var isMade = await SelftestRun.TryAsync(
                async () => etag = value == WatchHistory.Deleted
                    ? (await run.Client.DeleteAsync(run.Key(name), cancellationToken: stop)).Position.Etag
                    : (await run.Client.PutAsync(run.Key(name), Encoding.UTF8.GetBytes(value), cancellationToken: stop)).Etag,
                stop);
            if (isMade == true)
                history.Answered(name, value, etag);
            else if (isMade == false && value != WatchHistory.Deleted)
                history.Refused(value);
            return isMade == true;
        }

        static string ValueOf(KvEvent change) => change.Kind switch
        {
            KvEventKind.Put => Encoding.UTF8.GetString(change.Value.Span),
            KvEventKind.Delete => WatchHistory.Deleted,
            _ => $"({change.Kind})",
        };
    }

    /// <summary>A key with a time to live is there for so long, then it goes by itself, and a watch says why.</summary>
    public static async Task ExpiryAsync(SelftestRun run, CancellationToken stop)
    {
        var (key, touched) = (run.Key("expiring"), run.Key("touched"));
        var end = new TaskCompletionSource<KvEventReason>(TaskCreationOptions.RunContinuationsAsynchronously);
        // From before the put, because on a slow machine the key may be gone before a later watch begins.
        await using var watch = new FollowedWatch(
            run.Client, new KvWatch { Prefix = key, IsOneKey = true },
            change => _ = change.Kind == KvEventKind.Delete && end.TrySetResult(change.Reason), stop);
        await watch.BegunAsync();

        var began = await PutAsync(touched);
        var isKept = (await SelftestRun.RepeatAsync(() => run.Client.TouchAsync(touched, null, cancellationToken: stop).AsTask(), stop)).Existed;
        CheckNotEarly(isKept, Stopwatch.GetElapsedTime(began));
        began = await PutAsync(key);
        for (var isThere = true; isThere;)
        {
            isThere = (await SelftestRun.RepeatAsync(() => run.Client.GetAsync(key, cancellationToken: stop).AsTask(), stop)).Found;
            var age = Stopwatch.GetElapsedTime(began);
            CheckNotEarly(isThere, age);
            SelftestFailure.Unless(
                !isThere || age < ExpiryLimit, $"a key with a time to live of {TimeToLive.TotalSeconds} s is there after {age.TotalSeconds:F0} s");
            await Task.Delay(20, stop);
        }
        // On a machine that stands still the key may have expired before it was touched.
        var isStill = (await SelftestRun.RepeatAsync(() => run.Client.GetAsync(touched, cancellationToken: stop).AsTask(), stop)).Found;
        SelftestFailure.Unless(isStill || !isKept, $"a key whose time to live was taken away was expected to stay, and it is gone");
        await SelftestRun.UntilAsync(() => end.Task.IsCompleted || watch.HasFailed, static () => "the watch did not tell of the end of a key", stop);
        await watch.EndAsync();
        SelftestFailure.Unless(await end.Task == KvEventReason.Expired, $"the reason {KvEventReason.Expired} was expected of the end of a key, and the watch "
            + $"told {await end.Task}");

        // Returns when the attempt began that was answered. The key expires no earlier than a time to live after it.
        async Task<long> PutAsync(byte[] name)
        {
            var sent = 0L;
            await SelftestRun.RepeatAsync(
                () =>
                {
                    sent = Stopwatch.GetTimestamp();
                    return run.Client.PutAsync(name, "v"u8.ToArray(), new KvPutOptions { TimeToLive = TimeToLive }, stop).AsTask();
                },
                stop);
            return sent;
        }
    }

    /// <summary>Fails if a key is gone before its time.</summary>
    /// <param name="isThere">Whether it was there.</param>
    /// <param name="age">The time from before it was put until after that was seen.</param>
    internal static void CheckNotEarly(bool isThere, TimeSpan age) =>
        SelftestFailure.Unless(isThere || age >= AgeMin, $"a key with a time to live of {TimeToLive.TotalSeconds} s was gone after {age.TotalSeconds:F3} s");
}
