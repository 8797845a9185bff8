using System.Collections.Concurrent;
using System.Diagnostics;
using System.Globalization;

namespace KvCluster.ClusterTests;

/// <summary>
/// Stalls of this process, until it is disposed. Its relays carry everything between the nodes of a cluster, so a leader also loses its lease when this process
/// gets no processor, while no node stalls.
/// </summary>
internal sealed class HostStalls : IAsyncDisposable
{
    private static readonly TimeSpan Interval = TimeSpan.FromMilliseconds(20);

    /// <summary>Two heartbeat intervals. A lease is five of them, and two such delays in a row may end it.</summary>
    private static readonly TimeSpan Threshold = TimeSpan.FromMilliseconds(200);

    private readonly ConcurrentQueue<string> _log = new();
    private readonly CancellationTokenSource _stopping = new();
    private readonly Task _watching;

    public HostStalls() => _watching = Task.Run(WatchAsync);

    /// <summary>A line for each, as nodes write it in their logs.</summary>
    public IReadOnlyCollection<string> Log => _log;

    public async ValueTask DisposeAsync()
    {
        await _stopping.CancelAsync();
        await _watching;
        _stopping.Dispose();
    }

    private async Task WatchAsync()
    {
        while (!_stopping.IsCancellationRequested)
        {
            var began = Stopwatch.GetTimestamp();
            await Task.Delay(Interval, _stopping.Token).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
            var late = Stopwatch.GetElapsedTime(began) - Interval;
            if (late >= Threshold)
                _log.Enqueue(string.Create(CultureInfo.InvariantCulture, $"the test's process stalled for {late.TotalMilliseconds:F0} ms"));
        }
    }
}
