using System.Globalization;
using System.Text;
using KvCluster.Admin.V1;
using KvCluster.Benchmarks.Cluster;
using KvCluster.Client;

namespace KvCluster.Benchmarks.Shards;

/// <summary>
/// A cluster of three nodes with one client of all callers, and keys that are the same however many shards there are, up to <see cref="ShardsSuite.Many"/>.
/// </summary>
internal sealed class ShardedCluster : IAsyncDisposable
{
    // A million keys in all.
    private const int KeysOfShard = 15_625;
    private const int ValueBytes = 100;

    // Key 0 is in shard 0, key 1 in shard 1.
    private static readonly ReadOnlyMemory<byte>[] Keys = [.. Enumerable.Range(0, ShardsSuite.Many * KeysOfShard)
        .Select(static number => Key(number % ShardsSuite.Many, $"{number / ShardsSuite.Many:D5}"))];
    private static readonly byte[][] Values = ManyKeys.Values(ValueBytes);

    private readonly KvClient _client;

    private ShardedCluster(NodeServers servers)
    {
        Servers = servers;
        _client = new KvClient(new KvClientOptions { Endpoints = servers.Endpoints });
    }

    public NodeServers Servers { get; }

    /// <summary>Starts it and waits until every shard has a leader.</summary>
    public static async Task<ShardedCluster> StartAsync(int shards, CancellationToken cancellation) =>
        new(await NodeServers.StartAsync(FaultSuite.Nodes, shards, cancellation));

    /// <summary>A key in this one of <see cref="ShardsSuite.Many"/> shards.</summary>
    public static ReadOnlyMemory<byte> Key(int shard, string name) =>
        Encoding.UTF8.GetBytes(string.Create(CultureInfo.InvariantCulture, $"{shard:D4}/{name}"));

    /// <summary>
    /// Puts 100 bytes at a random key. Callers who took the shards in turn would have equally many puts in each at all times, which nobody's callers have.
    /// </summary>
    public Task PutAsync(int number) => PutAtAsync(Random.Shared.Next(Keys.Length), number);

    /// <summary>Puts 100 bytes at a random key of one of <see cref="ShardsSuite.Many"/> shards.</summary>
    public Task PutAsync(int shard, int number) => PutAtAsync((Random.Shared.Next(KeysOfShard) * ShardsSuite.Many) + shard, number);

    /// <summary>Writes the checkpoints that would otherwise follow when nothing is written, in somebody else's measurement.</summary>
    public Task CheckpointAsync(CancellationToken cancellation) => Task.WhenAll(Enumerable.Range(1, FaultSuite.Nodes)
        .Select(async node => await Servers.AdminOf(node).CheckpointAsync(new CheckpointRequest(), cancellationToken: cancellation)));

    private async Task PutAtAsync(int key, int number) => await _client.PutAsync(Keys[key], Values[number & (Values.Length - 1)]);

    public async ValueTask DisposeAsync()
    {
        await _client.DisposeAsync();
        await Servers.DisposeAsync();
    }
}
