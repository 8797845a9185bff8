using KvCluster.Node.Coordination;
using KvCluster.Node.Coordination.Embedded;

namespace KvCluster.Tests.Node;

/// <summary>
/// etcd had lost its data, and before its records were rebuilt from the nodes, a node with an empty directory or `kv-node init` created a second cluster there,
/// which stood in the way of the recovery.
/// </summary>
public sealed class WaitingNodesTests : IAsyncDisposable
{
    private static readonly CancellationToken Never = CancellationToken.None;
    private static readonly NewCluster Created = new([new(1), new(2)], 2, []);

    private readonly TemporaryDirectory _folder = new();
    private readonly ManualTime _time = new();
    private readonly EmbeddedCoordinator _coordinator;
    private readonly CoordinatorKeys _keys = new("test");

    public WaitingNodesTests() => _coordinator = EmbeddedCoordinator.Open(_folder.Path, _time);

    public async ValueTask DisposeAsync()
    {
        await _coordinator.DisposeAsync();
        _folder.Dispose();
    }

    [Fact]
    public async Task Create_WhileANodeWaitsThatHasData_IsRefusedUntilItIsWithdrawn()
    {
        await NoticeOf(1, WaitingNodes.Empty).KeepAsync(_coordinator, Never);
        var notice = NoticeOf(2, "c1");
        await notice.KeepAsync(_coordinator, Never);
        var refused = await Assert.ThrowsAsync<ClusterConflictException>(() => CreateAsync());
        Assert.StartsWith("The cluster 'test' was not created, because nodes have data of a cluster of this name, ", refused.Message, StringComparison.Ordinal);
        Assert.Contains(": 2 (cluster c1). So no new one was created, and nothing was changed. ", refused.Message, StringComparison.Ordinal);
        Assert.Contains("kv admin coordinator recover", refused.Message, StringComparison.Ordinal);
        Assert.DoesNotContain('\n', refused.Message);
        Assert.Equal([_keys.WaitingOf(new(1)), _keys.WaitingOf(new(2))], await KeysAsync());

        await notice.WithdrawAsync(_coordinator);
        Assert.True(await CreateAsync());
        // Whoever still says so changes nothing any more.
        await NoticeOf(2, "c1").KeepAsync(_coordinator, Never);
        Assert.False(await CreateAsync());
    }

    /// <summary>What it says remains for some seconds, because most nodes are started again at once, and not for ever.</summary>
    [Fact]
    public async Task Notice_OfANodeThatHasEnded_GoesWithItsLease_AndIsPutAgainWhenItIsGone()
    {
        var notice = NoticeOf(2, "c1");
        await notice.KeepAsync(_coordinator, Never);
        _time.Advance(TimeSpan.FromSeconds(9));
        await Assert.ThrowsAsync<ClusterConflictException>(() => CreateAsync());
        await notice.KeepAsync(_coordinator, Never);
        _time.Advance(TimeSpan.FromSeconds(9));
        Assert.Single(await KeysAsync());
        _time.Advance(TimeSpan.FromSeconds(2));
        Assert.Empty(await KeysAsync());

        await notice.KeepAsync(_coordinator, Never);
        // As somebody with etcdctl does by mistake, although the lease runs.
        var put = await _coordinator.GetAsync(_keys.WaitingOf(new(2)), Never);
        await _coordinator.CompareAndSetAsync(_keys.WaitingOf(new(2)), put.ModRevision, null, 0, Never);
        _time.Advance(TimeSpan.FromSeconds(2));
        await notice.KeepAsync(_coordinator, Never);
        Assert.Single(await KeysAsync());
        // Of two processes the later one counts, as after a restart with another directory.
        await NoticeOf(2, WaitingNodes.Empty).KeepAsync(_coordinator, Never);
        Assert.True(await CreateAsync());
    }

    [Fact]
    public async Task TryCreate_AfterANodeHasComeInBetween_EndsAndIsCompletedByTheNext()
    {
        var waiting = await WaitingNodes.ReadAsync(_coordinator, _keys, Never);
        await NoticeOf(2, WaitingNodes.Empty).KeepAsync(_coordinator, Never);
        Assert.Null(await ClusterInit.TryCreateAsync(_coordinator, "test", Created, waiting, Never));
        Assert.Equal([_keys.WaitingOf(new(2))], await KeysAsync());

        // It comes when the shards are there.
        var late = NoticeOf(3, "c1");
        await using var between = new ComesBeforeTheRecord(_coordinator, _keys.Cluster, () => late.KeepAsync(_coordinator, Never));
        waiting = await WaitingNodes.ReadAsync(_coordinator, _keys, Never);
        Assert.Null(await ClusterInit.TryCreateAsync(between, "test", Created, waiting, Never));
        Assert.Null((await _coordinator.GetAsync(_keys.Cluster, Never)).Value);
        await Assert.ThrowsAsync<ClusterConflictException>(() => CreateAsync());
        await late.WithdrawAsync(_coordinator);
        Assert.True(await CreateAsync());
    }

    [Fact]
    public async Task WhyIncomplete_NamesTheFirstNodesThatHaveNotSaidThatTheyAreEmpty()
    {
        await NoticeOf(1, WaitingNodes.Empty).KeepAsync(_coordinator, Never);
        var waiting = await WaitingNodes.ReadAsync(_coordinator, _keys, Never);
        Assert.Null(waiting.WhyLost());
        Assert.Null(waiting.WhyIncomplete([new(1)]));
        Assert.Contains("these have not: 2, 3. ", waiting.WhyIncomplete([new(1), new(2), new(3)]), StringComparison.Ordinal);
    }

    private WaitingNotice NoticeOf(uint node, string has) => new(_keys, new(node), has, _time);

    private Task<bool> CreateAsync() => ClusterInit.CreateAsync(_coordinator, "test", Created, Never);

    private async Task<IEnumerable<string>> KeysAsync() => (await _coordinator.ListAsync(_keys.Root, Never)).Entries.Select(static entry => entry.Key);

    private sealed class ComesBeforeTheRecord(ICoordinator inner, string record, Func<Task> comes) : PassingCoordinator(inner)
    {
        public override async Task<CompareAndSetResult> CompareAndSetAsync(
            string key, long expectedRevision, string? value, long lease, CoordinatorGuard? guardedBy, CancellationToken cancellationToken)
        {
            if (key == record)
                await comes();
            return await Inner.CompareAndSetAsync(key, expectedRevision, value, lease, guardedBy, cancellationToken);
        }
    }
}
