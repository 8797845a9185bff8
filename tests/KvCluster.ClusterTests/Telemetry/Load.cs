using System.Globalization;
using System.Text;
using KvCluster.Client;

namespace KvCluster.ClusterTests.Telemetry;

/// <summary>Callers of a router that put, read, scan and delete until it is disposed, whatever fails.</summary>
internal sealed class Load : IAsyncDisposable
{
    private const int Callers = 4;
    private readonly CancellationTokenSource _stopping = new();
    private readonly KvClient _client;
    private readonly Task _running;
    private long _rounds;
    private long _failures;
    private volatile string _lastFailure = "none";

    public Load(string router)
    {
        // Through the router, whose calls to the nodes are what the library's metrics show.
        _client = new KvClient(new KvClientOptions { Endpoints = [router], Gateway = true, Timeout = TimeSpan.FromSeconds(3) });
        _running = Task.WhenAll(Enumerable.Range(0, Callers).Select(caller => Task.Run(() => RunAsync(caller))));
    }

    /// <summary>The size of the values put from now on.</summary>
    public int ValueBytes { get; set; } = 100;

    /// <summary>The number of keys in each shard from now on. Large values at few keys make journals grow but not trees.</summary>
    public int Keys { get; set; } = 1_000;

    /// <summary>What it has done, for people.</summary>
    public override string ToString() => string.Create(
        CultureInfo.InvariantCulture,
        $"the load has ended {Volatile.Read(ref _rounds)} rounds, and {Volatile.Read(ref _failures)} failed, the last: {_lastFailure}");

    public async ValueTask DisposeAsync()
    {
        await _stopping.CancelAsync();
        await _running;
        await _client.DisposeAsync();
        _stopping.Dispose();
    }

    private async Task RunAsync(int caller)
    {
        var random = new Random(caller);
        while (!_stopping.IsCancellationRequested)
        {
            // To both shards.
            var key = Encoding.UTF8.GetBytes($"{(random.Next(2) == 0 ? 'a' : 'z')}/{random.Next(Keys)}");
            try
            {
                await _client.PutAsync(key, new byte[ValueBytes], cancellationToken: _stopping.Token);
                await _client.GetAsync(key, cancellationToken: _stopping.Token);
                if (random.Next(20) == 0)
                    await _client.DeleteAsync(key, cancellationToken: _stopping.Token);
                if (random.Next(50) == 0)
                    await ScanAsync();
                Interlocked.Increment(ref _rounds);
            }
            catch (Exception failure) when (failure is KvException or OperationCanceledException)
            {
                // Failures by the injected faults, whose consequences are under test, or at the end.
                Interlocked.Increment(ref _failures);
                _lastFailure = failure.Message;
            }
        }
    }

    private async Task ScanAsync()
    {
        await foreach (var _ in _client.ScanAsync(new KvScan { Prefix = "a/1"u8.ToArray(), KeysOnly = true }, _stopping.Token))
        {
            // Only to have a scan.
        }
    }
}
