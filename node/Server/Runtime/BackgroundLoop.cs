// Repeated work of a node besides its replicas: metrics, placement of leaders, repair of lost replicas. Runs on the thread pool. An exception that leaves a
// turn is a bug: it is logged, and the loop continues, because nothing else would do its work.
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Runtime;

/// <summary>Takes turns until disposed.</summary>
internal sealed partial class BackgroundLoop : IAsyncDisposable
{
    private static readonly TimeSpan FailedPause = TimeSpan.FromSeconds(1);

    private readonly string _name;
    private readonly Func<CancellationToken, Task> _turn;
    private readonly Func<TimeSpan> _pause;
    private readonly TimeProvider _timers;
    private readonly ILogger _log;
    private readonly CancellationTokenSource _stopping = new();
    private readonly Task _running;

    /// <param name="name">The loop's name in the log, for example "the placement of leaders".</param>
    /// <param name="turn">One turn. Its token fires at the stop, which waits for the turn to end.</param>
    /// <param name="pause">Called after each turn; returns the time until the next.</param>
    /// <param name="timers">End the pauses. Those that the node's replicas share wake no thread of their own for it.</param>
    /// <param name="log">Receives failed turns.</param>
    public BackgroundLoop(string name, Func<CancellationToken, Task> turn, Func<TimeSpan> pause, TimeProvider timers, ILogger log)
    {
        _name = name;
        _turn = turn;
        _pause = pause;
        _timers = timers;
        _log = log;
        _running = Task.Run(RunAsync);
    }

    public async ValueTask DisposeAsync()
    {
        await _stopping.CancelAsync().ConfigureAwait(false);
        await _running.ConfigureAwait(false);
        _stopping.Dispose();
    }

    private async Task RunAsync()
    {
        while (!_stopping.IsCancellationRequested)
        {
            try
            {
                await _turn(_stopping.Token).ConfigureAwait(false);
            }
            catch (OperationCanceledException) when (_stopping.IsCancellationRequested)
            {
                return;
            }
            catch (Exception failure)
            {
                LoopFailures.Count();
                LogTurnFailed(_log, _name, failure);
            }
            await Task.Delay(NextPause(), _timers, _stopping.Token).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
            // What follows a delay runs on the thread of its timer, which must not take the turn.
            await Task.Yield();
        }
    }

    // A bug in the callback must not end the loop either.
    private TimeSpan NextPause()
    {
        try
        {
            return _pause();
        }
        catch (Exception failure)
        {
            LoopFailures.Count();
            LogTurnFailed(_log, _name, failure);
            return FailedPause;
        }
    }

    [LoggerMessage(21, LogLevel.Error, "An iteration of {Loop} failed; the loop continues")]
    private static partial void LogTurnFailed(ILogger log, string loop, Exception failure);
}

/// <summary>Counts unexpected exceptions in the background loops of a process. Each is a bug, and its loop continues. Any thread.</summary>
internal static class LoopFailures
{
    private static long _total;

    /// <summary>The number in this process so far.</summary>
    public static long Total => Volatile.Read(ref _total);

    public static void Count() => Interlocked.Increment(ref _total);
}
