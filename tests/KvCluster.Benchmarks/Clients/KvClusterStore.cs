using KvCluster.Benchmarks.Cluster;
using KvCluster.Cli.Bench;
using KvCluster.Client;

namespace KvCluster.Benchmarks.Clients;

/// <summary>Three nodes with one shard, called by the library, as `kv bench` does.</summary>
internal sealed class KvClusterStore(KvServers servers, int records) : IYcsbStore
{
    private readonly KvClient _client = new(servers.RouterAddress);

    public string Name => ClientsSuite.Ours;

    public int Records => records;

    public IReadOnlyList<int> Servers => servers.Processes;

    public async Task LoadAsync(byte[][] values, CancellationToken cancellation)
    {
        await using var load = _client.BulkLoad();
        for (var number = 0; number < records; number++)
            await load.AddAsync(BenchKeys.At(number), values[number & (values.Length - 1)], cancellation);
        await load.FlushAsync(cancellation);
    }

    public async ValueTask<bool> GetAsync(int caller, ReadOnlyMemory<byte> key) => (await _client.GetAsync(key)).Found;

    public async ValueTask PutAsync(int caller, ReadOnlyMemory<byte> key, byte[] value) => await _client.PutAsync(key, value);

    public ValueTask InsertAsync(int caller, ReadOnlyMemory<byte> key, byte[] value) => PutAsync(caller, key, value);

    public async ValueTask<int> ScanAsync(int caller, ReadOnlyMemory<byte> start, int limit)
    {
        var found = 0;
        await foreach (var _ in _client.ScanAsync(new KvScan { Prefix = BenchKeys.Prefix, Start = start, Limit = (ulong)limit }))
            found++;
        return found;
    }

    public async ValueTask DisposeAsync()
    {
        await _client.DisposeAsync();
        await servers.DisposeAsync();
    }
}
