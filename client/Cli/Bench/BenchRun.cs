using System.Diagnostics;
using System.Threading.Channels;
using KvCluster.Client;

namespace KvCluster.Cli.Bench;

/// <summary>
/// Operations of a workload by a number of callers, each with one in progress, for some time. Closed: each caller makes the next operation when it has the
/// answer to the one before. Open: operations are due at a rate, whether others were answered or not, and the time of one that has to wait for a caller counts
/// from when it was due. So a cluster that stands still is seen in as many operations as it has delayed.
/// </summary>
/// <param name="client">Makes the calls.</param>
/// <param name="workload">What they are.</param>
/// <param name="keys">Of which keys.</param>
/// <param name="value">What is put.</param>
/// <param name="latencies">Gets the times.</param>
internal sealed class BenchRun(KvClient client, Workload workload, BenchKeys keys, byte[] value, Latencies latencies)
{
    private const int ScanEntriesMax = 100;

    /// <summary>Operations that are due and wait for a caller. If there are more, the others are not sent.</summary>
    private const int DueMax = 1 << 20;

    /// <summary>
    /// How long the callers of an open loop go on with what is due when its time is over. Enough for what a healthy cluster is late with; a rate that the
    /// cluster does not reach leaves more behind the longer it lasts.
    /// </summary>
    private static readonly TimeSpan DrainMax = TimeSpan.FromSeconds(2);

    /// <summary>How late a timer may be without that being the fault of whoever is measured.</summary>
    private static readonly TimeSpan TimerSlack = TimeSpan.FromMilliseconds(2);

    // Of an open loop.
    private long _begun;
    private long _ended;

    /// <summary>How long an operation is made again while it is refused as busy. If that takes longer, the run ends with what the refusal says.</summary>
    public TimeSpan BusyMax { get; init; } = TimeSpan.FromMinutes(1);

    /// <summary>Each caller makes one operation after the other, at least one.</summary>
    public Task CloseLoopAsync(int callers, TimeSpan duration, CancellationToken stop)
    {
        var started = Stopwatch.GetTimestamp();
        return Task.WhenAll(Enumerable.Range(0, callers).Select(_ => Task.Run(() => CallAsync(started, duration, stop), stop)));
    }

    /// <summary>Operations are begun at a rate. Two seconds after the end of its time it gives up those that were not begun or not answered.</summary>
    /// <param name="callers">At most so many are in progress.</param>
    /// <param name="rate">How many are due in a second.</param>
    /// <param name="duration">How long operations are due.</param>
    /// <param name="stop">Ends it, with an exception.</param>
    public async Task<LeftUndone> OpenLoopAsync(int callers, double rate, TimeSpan duration, CancellationToken stop)
    {
        var due = Channel.CreateBounded<long>(DueMax);
        using var givenUp = CancellationTokenSource.CreateLinkedTokenSource(stop);
        var calls = Task.WhenAll(Enumerable.Range(0, callers).Select(_ => Task.Run(() => CallDueAsync(due.Reader, givenUp.Token, stop), stop)));
        var pacing = PaceAsync(due.Writer, rate, duration, stop);
        // If calls fail, nobody takes what is due.
        await Task.WhenAny(pacing, calls);
        due.Writer.TryComplete();
        givenUp.CancelAfter(DrainMax);
        await calls;
        return new LeftUndone(await pacing - _begun, _begun - _ended);
    }

    private async Task CallAsync(long started, TimeSpan duration, CancellationToken stop)
    {
        do
            await CallOnceAsync(Stopwatch.GetTimestamp(), stop);
        while (Stopwatch.GetElapsedTime(started) < duration);
    }

    // Ends when nothing is due any more, or when it is given up.
    private async Task CallDueAsync(ChannelReader<long> due, CancellationToken givenUp, CancellationToken stop)
    {
        try
        {
            await foreach (var since in due.ReadAllAsync(givenUp))
            {
                givenUp.ThrowIfCancellationRequested();
                Interlocked.Increment(ref _begun);
                await CallOnceAsync(since, givenUp);
                Interlocked.Increment(ref _ended);
            }
        }
        catch (OperationCanceledException) when (givenUp.IsCancellationRequested && !stop.IsCancellationRequested)
        {
            // What is left is counted.
        }
    }

    /// <summary>Tells what is due. Returns how many operations were.</summary>
    private static async Task<long> PaceAsync(ChannelWriter<long> due, double rate, TimeSpan duration, CancellationToken stop)
    {
        var started = Stopwatch.GetTimestamp();
        var told = 0L;
        for (; Stopwatch.GetElapsedTime(started) < duration; await Task.Delay(1, stop))
        {
            var now = Stopwatch.GetTimestamp();
            for (var passed = Stopwatch.GetElapsedTime(started, now); told < passed.TotalSeconds * rate; told++)
            {
                var late = passed - TimeSpan.FromSeconds(told / rate);
                // Where too many wait, it is counted and forgotten.
                due.TryWrite(late < TimerSlack ? now : now - (long)(late.TotalSeconds * Stopwatch.Frequency));
            }
        }
        return told;
    }

    private async Task CallOnceAsync(long since, CancellationToken stop)
    {
        var operation = workload.OperationOf(Random.Shared.Next(100));
        // In an open loop it may have waited for a caller for longer than it may be refused.
        var begun = Stopwatch.GetTimestamp();
        // Its time goes on, so what the cluster could not do in time is seen in the times.
        while (await TryExecuteAsync(operation, begun, stop) is { } wait)
            await Task.Delay(wait, stop);
        latencies.Add(operation, Stopwatch.GetElapsedTime(since));
    }

    /// <summary>
    /// Null if it was executed. Otherwise it was refused as busy, after most of the call's time, and this is how long to wait before it is made again.
    /// </summary>
    private async Task<TimeSpan?> TryExecuteAsync(BenchOperation operation, long begun, CancellationToken stop)
    {
        try
        {
            await ExecuteAsync(operation, stop);
            return null;
        }
        catch (KvUnavailableException busy) when (busy.Reason == KvReasons.Busy && Stopwatch.GetElapsedTime(begun) < BusyMax)
        {
            var left = BusyMax - Stopwatch.GetElapsedTime(begun);
            var asked = busy.RetryAfter ?? TimeSpan.Zero;
            return asked <= left ? asked : left > TimeSpan.Zero ? left : TimeSpan.Zero;
        }
    }

    private async Task ExecuteAsync(BenchOperation operation, CancellationToken stop)
    {
        switch (operation)
        {
            case BenchOperation.Get:
                await client.GetAsync(keys.Choose(), cancellationToken: stop);
                break;
            case BenchOperation.Put:
                await client.PutAsync(keys.Choose(), value, cancellationToken: stop);
                break;
            case BenchOperation.Insert:
                await client.PutAsync(keys.New(), value, cancellationToken: stop);
                break;
            case BenchOperation.Modify:
                var key = keys.Choose();
                await client.GetAsync(key, cancellationToken: stop);
                await client.PutAsync(key, value, cancellationToken: stop);
                break;
            default:
                await ScanAsync(stop);
                break;
        }
    }

    private async Task ScanAsync(CancellationToken stop)
    {
        var scan = new KvScan { Prefix = BenchKeys.Prefix, Start = keys.Choose(), Limit = (ulong)Random.Shared.Next(1, ScanEntriesMax + 1) };
        await foreach (var _ in client.ScanAsync(scan, stop))
        {
        }
    }
}

/// <summary>What was due in an open loop and is not in its latencies.</summary>
/// <param name="NotSent">How many operations were not begun.</param>
/// <param name="NotAnswered">How many were begun and had no answer when the run ended. Changes among them may have been applied.</param>
internal readonly record struct LeftUndone(long NotSent, long NotAnswered);
