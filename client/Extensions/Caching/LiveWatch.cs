using KvCluster.Client;
using Microsoft.Extensions.Logging;

namespace KvCluster.Extensions.Caching;

/// <summary>
/// Keeps something like a part of the cluster, by a watch that begins anew when it ends. Its loop runs on the pool until it is disposed. Otherwise any thread.
/// </summary>
internal sealed class LiveWatch : IAsyncDisposable
{
    private static readonly KvRange Everything = new() { All = true };

    /// <summary>Before the watch begins anew.</summary>
    private static readonly TimeSpan Pause = TimeSpan.FromSeconds(1);

    /// <summary>How often it is looked which shard has been silent for longest.</summary>
    private static readonly TimeSpan Between = TimeSpan.FromMilliseconds(100);

    private readonly KvClient _client;
    private readonly KvWatch _watch;
    private readonly IWatched _watched;
    private readonly TimeSpan _silenceMax;
    private readonly TimeProvider _time;
    private readonly ILogger _log;
    private readonly CancellationTokenSource _stopped = new();
    private readonly Task _loop;

    // Of the loop: when each shard told something.
    private readonly Dictionary<uint, long> _heard = [];
    private long _looked;

    private long _silentSince;
    private volatile bool _isComplete;

    /// <param name="client">Makes the watch.</param>
    /// <param name="watch">What is watched.</param>
    /// <param name="watched">What is kept like it.</param>
    /// <param name="silenceMax">See <see cref="IsLive"/>.</param>
    /// <param name="time">The clock.</param>
    /// <param name="log">Where it says that the watch has ended.</param>
    public LiveWatch(KvClient client, KvWatch watch, IWatched watched, TimeSpan silenceMax, TimeProvider time, ILogger log)
    {
        (_client, _watch, _watched, _silenceMax, _time, _log) = (client, watch, watched, silenceMax, time, log);
        _loop = Task.Run(RunAsync);
    }

    /// <summary>Whether everything that changed is known, except what did a moment ago: no shard has been silent for too long.</summary>
    public bool IsLive => _isComplete && _time.GetElapsedTime(Volatile.Read(ref _silentSince)) < _silenceMax;

    /// <summary>Ends the loop, without waiting for it.</summary>
    public void Stop() => _stopped.Cancel();

    public async ValueTask DisposeAsync()
    {
        Stop();
        await _loop.ConfigureAwait(false);
    }

    private async Task RunAsync()
    {
        while (!_stopped.IsCancellationRequested)
        {
            try
            {
                await foreach (var message in _client.WatchAsync(_watch, _stopped.Token).ConfigureAwait(false))
                    Take(message);
            }
            catch (KvException failure)
            {
                CacheLog.WatchEnded(_log, failure.Reason, failure);
            }
            catch (Exception stopped) when (stopped is OperationCanceledException or ObjectDisposedException)
            {
                // The program ends. If only the client was disposed, nothing is live any more.
            }
            finally
            {
                _isComplete = false;
                _heard.Clear();
                _watched.Forget(Everything);
            }
            await Task.Delay(Pause, _stopped.Token).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        }
    }

    private void Take(KvWatchMessage message)
    {
        if (message.Forget is { } range)
            _watched.Forget(range);
        foreach (var change in message.Events)
            _watched.Apply(change);
        var now = _time.GetTimestamp();
        // The entries that a watch begins with have no position, except the last ones of a shard.
        if (message.Position != default)
            _heard[message.Position.Shard] = now;
        var isComplete = _isComplete || (_watch.Initial ? message.IsInitialComplete : message.Token is not null);
        if (_heard.Count > 0 && (isComplete != _isComplete || _time.GetElapsedTime(_looked, now) >= Between))
        {
            _looked = now;
            Volatile.Write(ref _silentSince, _heard.Values.Min());
        }
        _isComplete = isComplete;
    }
}
