using System.Text;
using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;
using KvCluster.Node.Coordination.Embedded;

namespace KvCluster.Tests.Node;

public sealed class ClusterInitTests : IAsyncDisposable
{
    private static readonly CancellationToken Never = CancellationToken.None;

    private readonly TemporaryDirectory _directory = new();
    private readonly EmbeddedCoordinator _coordinator;
    private readonly CoordinatorKeys _keys = new("test");

    public ClusterInitTests() => _coordinator = EmbeddedCoordinator.Open(_directory.Path, TimeProvider.System);

    public async ValueTask DisposeAsync()
    {
        await _coordinator.DisposeAsync();
        _directory.Dispose();
    }

    [Theory]
    [InlineData(1, 1, 4)]
    [InlineData(3, 3, 7)]
    [InlineData(5, 3, 12)]
    [InlineData(4, 2, 9)]
    public async Task Create_SpreadsReplicasAndPreferredLeaders(int nodeCount, int replicationFactor, int shardCount)
    {
        var splitKeys = Enumerable.Range(1, shardCount - 1).Select(index => (ReadOnlyMemory<byte>)Encoding.UTF8.GetBytes($"k{index:00}")).ToList();
        Assert.True(await CreateAsync(nodeCount, replicationFactor, splitKeys));

        var shards = await ShardsAsync();
        Assert.Equal(shardCount, shards.Count);
        Assert.Equal(shards.Skip(1).Select(shard => shard.Start), shards.SkipLast(1).Select(shard => shard.End));
        Assert.True(shards[0].Start.IsEmpty && shards[^1].End.IsEmpty);
        Assert.All(shards, shard => Assert.Equal(replicationFactor, shard.Replicas.Select(replica => replica.Node).Distinct().Count()));
        Assert.All(shards.SelectMany(shard => shard.Replicas), replica => Assert.True(replica is { Created: false, Replica: not 0 }));
        var preferred = shards.Select(shard => shard.Replicas[(int)shard.Shard % replicationFactor].Node)
            .CountBy(node => node).Select(node => node.Value).ToList();
        Assert.InRange(preferred.Max() - (preferred.Count < nodeCount ? 0 : preferred.Min()), 0, 1);
    }

    [Fact]
    public async Task Create_Again_ChangesNothing()
    {
        Assert.True(await CreateAsync(3, 3, []));
        var before = await _coordinator.ListAsync(_keys.Root, Never);
        Assert.False(await CreateAsync(1, 1, ["m"u8.ToArray()]));
        Assert.Equal(before.Entries, (await _coordinator.ListAsync(_keys.Root, Never)).Entries);
    }

    [Fact]
    public async Task Create_AfterAnInterruptedOne_CompletesIt()
    {
        await CreateAsync(3, 3, ["m"u8.ToArray()]);
        foreach (var key in (string[])[_keys.Cluster, _keys.Shard(new(1))])
            await _coordinator.CompareAndSetAsync(key, (await _coordinator.GetAsync(key, Never)).ModRevision, null, 0, Never);
        var kept = (await ShardsAsync()).Single();
        await Assert.ThrowsAsync<ClusterConflictException>(() => CreateAsync(3, 3, ["n"u8.ToArray()]));
        Assert.True(await CreateAsync(3, 3, ["m"u8.ToArray()]));
        Assert.Equal([kept, (await ShardsAsync())[1]], await ShardsAsync());
    }

    [Fact]
    public async Task Create_WithImpossibleArguments_IsRefused()
    {
        await Assert.ThrowsAsync<ArgumentException>(() => CreateAsync(2, 3, []));
        await Assert.ThrowsAsync<ArgumentException>(() => CreateAsync(0, 1, []));
        await Assert.ThrowsAsync<ArgumentException>(() => CreateAsync(1, 1, ["b"u8.ToArray(), "a"u8.ToArray()]));
        await Assert.ThrowsAsync<ArgumentException>(() => CreateAsync(1, 1, [Array.Empty<byte>()]));
        Assert.Empty((await _coordinator.ListAsync("/", Never)).Entries);
    }

    private Task<bool> CreateAsync(int nodeCount, int replicationFactor, IReadOnlyList<ReadOnlyMemory<byte>> splitKeys) =>
        ClusterInit.CreateAsync(
            _coordinator, "test",
            new NewCluster([.. Enumerable.Range(1, nodeCount).Select(node => new NodeId((uint)node))], replicationFactor, splitKeys), Never);

    private async Task<List<ShardRecord>> ShardsAsync() =>
        [.. (await _coordinator.ListAsync(_keys.Shards, Never)).Entries.Select(entry => RecordText.Parse<ShardRecord>(entry.Value!))
            .OrderBy(shard => shard.Shard)];
}
