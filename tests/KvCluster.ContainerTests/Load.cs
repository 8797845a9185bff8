using System.Diagnostics;
using System.Text;
using KvCluster.Client;

namespace KvCluster.ContainerTests;

/// <summary>
/// Writers outside of the cluster's network, which put keys through the router, each key once, and remember what was acknowledged and what failed. A call waits
/// for as long as no fault of one container should last.
/// </summary>
internal sealed class Load : IAsyncDisposable
{
    /// <summary>Writers by shard, which <see cref="ContainerCluster.SplitAt"/> divides: two each.</summary>
    private const int Writers = 6;

    /// <summary>How many acknowledged writes count as proof that writers go on.</summary>
    private const int ManyMore = 200;

    private const int CompareAtOnce = 500;

    /// <summary>More than the default, because the engine, all containers and the writers may share two processors with much else.</summary>
    private static readonly TimeSpan CallTimeout = Eventually.Limit;

    private static readonly TimeSpan PauseBetween = TimeSpan.FromMilliseconds(10);

    private readonly KvClient _client;
    private readonly string _name;
    private readonly CancellationTokenSource _enough = new();
    private readonly Task[] _writers;
    private readonly Lock _lock = new();
    private readonly List<string> _acknowledged = [];
    private readonly List<(string Key, KvException Failure)> _failed = [];
    private long _lastAcknowledged = Stopwatch.GetTimestamp();
    private TimeSpan _longestPause;

    /// <param name="router">The router's address.</param>
    /// <param name="name">Part of all keys, so that no other load of the same cluster has them.</param>
    public Load(string router, string name)
    {
        _client = new KvClient(new KvClientOptions { Endpoints = [router], Gateway = true, Timeout = CallTimeout });
        _name = name;
        _writers = [.. Enumerable.Range(0, Writers).Select(writer => Task.Run(() => WriteAsync(writer)))];
    }

    /// <summary>Acknowledged writes so far.</summary>
    public int Acknowledged
    {
        get
        {
            lock (_lock)
                return _acknowledged.Count;
        }
    }

    /// <summary>Why calls failed, after <see cref="StopAsync"/>.</summary>
    public IEnumerable<string> Failures => _failed.Select(static failed => $"{failed.Key}: {failed.Failure.Reason}: {failed.Failure.Message}");

    /// <summary>Waits until many more writes are acknowledged.</summary>
    public async Task MoreAsync()
    {
        var before = Acknowledged;
        await Eventually.TrueAsync(
            async () =>
            {
                // A writer that ended has an exception that nobody expected.
                if (Array.Find(_writers, static writer => writer.IsCompleted) is { } ended)
                    await ended;
                return Acknowledged >= before + ManyMore;
            },
            $"{ManyMore} more writes are acknowledged");
    }

    /// <summary>Ends the writers, each when its call has ended.</summary>
    public async Task StopAsync()
    {
        await _enough.CancelAsync();
        await Task.WhenAll(_writers);
    }

    /// <summary>What was acknowledged, as `kv verify` reads it: a record per line, key, tab, value. After <see cref="StopAsync"/>.</summary>
    public byte[] ToTsv() => Encoding.UTF8.GetBytes(string.Concat(_acknowledged.Select(static key => $"{key}\t{ValueOf(key)}\n")));

    /// <summary>Checks that no key is there whose write has certainly not been applied, by its error. After <see cref="StopAsync"/>.</summary>
    public async Task NoRefusedKeyIsThereAsync()
    {
        var refused = _failed.Where(static failed => failed.Failure.Outcome == ChangeOutcome.NotApplied);
        foreach (var keys in refused.Select(static failed => failed.Key).Chunk(CompareAtOnce))
        {
            var found = await _client.GetManyAsync([.. keys.Select(static key => (KvKey)key)]);
            Assert.Empty(keys.Zip(found).Where(static pair => pair.Second.Found).Select(static pair => pair.First));
        }
    }

    public override string ToString() =>
        $"{_acknowledged.Count} writes acknowledged, {_failed.Count} failed, longest pause {_longestPause.TotalMilliseconds:F0} ms";

    public async ValueTask DisposeAsync()
    {
        await _enough.CancelAsync();
        await Task.WhenAll(_writers).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        await _client.DisposeAsync();
        _enough.Dispose();
    }

    private static string ValueOf(string key) => "of " + key;

    private async Task WriteAsync(int writer)
    {
        for (var number = 0; !_enough.IsCancellationRequested; number++)
        {
            var key = $"load/{writer}/{_name}/{number}";
            try
            {
                await _client.PutAsync(key, ValueOf(key));
                Acknowledge(key);
            }
            catch (KvException failure)
            {
                lock (_lock)
                    _failed.Add((key, failure));
            }
            await Task.Delay(PauseBetween);
        }
    }

    private void Acknowledge(string key)
    {
        lock (_lock)
        {
            _acknowledged.Add(key);
            var now = Stopwatch.GetTimestamp();
            var pause = Stopwatch.GetElapsedTime(_lastAcknowledged, now);
            if (pause > _longestPause)
                _longestPause = pause;
            _lastAcknowledged = now;
        }
    }
}
