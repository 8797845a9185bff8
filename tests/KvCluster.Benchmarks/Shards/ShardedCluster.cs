using System.Globalization;
using System.Text;
using KvCluster.Admin.V1;
using KvCluster.Benchmarks.Cluster;
using KvCluster.Client;

namespace KvCluster.Benchmarks.Shards;

/// <summary>A cluster of three nodes with a client, and keys that are the same however many shards there are, up to <see cref="ShardsSuite.Many"/>.</summary>
internal sealed class ShardedCluster : IAsyncDisposable
{
    private const int KeysOfShard = 1_000;
    private const int ValueBytes = 100;

    // Neighbours are in different shards: key 0 in shard 0, key 1 in shard 1.
    private static readonly ReadOnlyMemory<byte>[] Keys = [.. Enumerable.Range(0, ShardsSuite.Many * KeysOfShard)
        .Select(static number => Key(number % ShardsSuite.Many, $"{number / ShardsSuite.Many:D4}"))];
    private static readonly byte[][] Values = ManyKeys.Values(ValueBytes);

    private ShardedCluster(NodeServers servers)
    {
        Servers = servers;
        Client = new KvClient(new KvClientOptions { Endpoints = servers.Endpoints });
    }

    public NodeServers Servers { get; }

    /// <summary>The client of all callers.</summary>
    public KvClient Client { get; }

    /// <summary>Starts it and waits until every shard has a leader.</summary>
    public static async Task<ShardedCluster> StartAsync(int shards, CancellationToken cancellation) =>
        new(await NodeServers.StartAsync(FaultSuite.Nodes, shards, cancellation));

    /// <summary>A key in this one of <see cref="ShardsSuite.Many"/> shards.</summary>
    public static ReadOnlyMemory<byte> Key(int shard, string name) =>
        Encoding.UTF8.GetBytes(string.Create(CultureInfo.InvariantCulture, $"{shard:D4}/{name}"));

    /// <summary>Puts 100 bytes at the key of a number. Consecutive numbers are spread evenly over all shards.</summary>
    public async Task PutAsync(int number) => await Client.PutAsync(Keys[number % Keys.Length], Values[number & (Values.Length - 1)]);

    /// <summary>Puts 100 bytes into one of <see cref="ShardsSuite.Many"/> shards.</summary>
    public Task PutAsync(int shard, int number) => PutAsync((number % KeysOfShard * ShardsSuite.Many) + shard);

    /// <summary>Writes the checkpoints that would otherwise follow when nothing is written, in somebody else's measurement.</summary>
    public Task CheckpointAsync(CancellationToken cancellation) => Task.WhenAll(Enumerable.Range(1, FaultSuite.Nodes)
        .Select(async node => await Servers.AdminOf(node).CheckpointAsync(new CheckpointRequest(), cancellationToken: cancellation)));

    public async ValueTask DisposeAsync()
    {
        await Client.DisposeAsync();
        await Servers.DisposeAsync();
    }
}
