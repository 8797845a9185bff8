using Grpc.Net.Client;
using KvCluster.Internal.V1;
using KvCluster.Node;
using KvCluster.Node.Configuration;
using KvCluster.Node.Coordination;
using KvCluster.Node.Coordination.Embedded;
using KvCluster.Node.CoordinatorRecovery;
using KvCluster.Node.Hosting;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.Storage.Files;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Node;

/// <summary>
/// The records were rebuilt in a new store without node 2, which is started with the address of the old store. That is back, and as far as the node knows it is
/// the cluster's (F53).
/// </summary>
public sealed class JoinedElsewhereTests : IDisposable
{
    private static readonly CancellationToken Never = CancellationToken.None;

    private readonly TemporaryDirectory _folder = new();

    public void Dispose() => _folder.Dispose();

    [Fact]
    public async Task Start_WithTheOldStoreWhileAnotherNodeGoesByALaterRecovery_WaitsUntilItsRecordsAreRaised()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        var before = RecordText.Parse<ClusterRecord>((await cluster.Coordinator.GetAsync(cluster.Keys.Cluster, Never)).Value!);
        var known = KnownRecords.Open(LocalDisk.Instance, _folder.Path);
        known.Keep(before);
        known.Keep(NodesOf(cluster));
        Assert.Equal(new JoinedElsewhere(new(1), 0), await FoundAsync(known));
        await RebuildAsync(cluster);
        await Eventually.TrueAsync(async () => await FindAsync(known) == new JoinedElsewhere(new(1), 1), "node 1 has joined the recovery");

        await using var old = EmbeddedCoordinator.Open(Path.Combine(_folder.Path, "old"), TimeProvider.System);
        var put = await old.CompareAndSetAsync(cluster.Keys.Cluster, 0, RecordText.Format(before), 0, Never);
        var options = new NodeOptions { Node = new(2), DataDirectory = _folder.Path, Listen = "http://127.0.0.1:0" };
        var health = new ProcessHealth();
        var entry = new ClusterEntry(options, old, cluster.Keys, health, NullLogger.Instance);
        var refused = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        var entering = entry.WaitForClusterAsync(
            mayCreate: false,
            known.Cluster,
            () => FoundAsync(known),
            () =>
            {
                refused.TrySetResult();
                return Task.CompletedTask;
            },
            Never);
        await refused.Task.WaitAsync(Eventually.Limit);
        await Eventually.TrueAsync(() => health.NotStarted?.Contains("node 1 has joined recovery 1", StringComparison.Ordinal) == true, "it says why it waits");
        Assert.False(entering.IsCompleted);

        var raised = before.Clone();
        (raised.Recovery, raised.RecoveryId) = (2, 8);
        await old.CompareAndSetAsync(cluster.Keys.Cluster, put.Revision, RecordText.Format(raised), 0, Never);
        Assert.Equal(2UL, (await entering.WaitAsync(Eventually.Limit)).Record.Recovery);
    }

    /// <summary>Whoever answers at an old address of a node may be of another cluster.</summary>
    [Fact]
    public async Task Find_ByANodeOfAnotherLineageOrWithoutRecords_FindsNothing()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        var known = KnownRecords.Open(LocalDisk.Instance, _folder.Path);
        known.Keep(NodesOf(cluster));
        Assert.Null(await FindAsync(known));
        var other = RecordText.Parse<ClusterRecord>((await cluster.Coordinator.GetAsync(cluster.Keys.Cluster, Never)).Value!);
        other.Lineage = Lineage.Create().ToByteString();
        known.Keep(other);
        Assert.Null(await FindAsync(known));
    }

    /// <summary>A node that is stopped while it starts has not failed.</summary>
    [Fact]
    public async Task Find_ThatIsCancelled_EndsAsCancelled()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        var known = KnownRecords.Open(LocalDisk.Instance, _folder.Path);
        known.Keep(RecordText.Parse<ClusterRecord>((await cluster.Coordinator.GetAsync(cluster.Keys.Cluster, Never)).Value!));
        known.Keep(NodesOf(cluster));
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => FindAsync(known, new CancellationToken(canceled: true)));
    }

    private static Task<JoinedElsewhere?> FindAsync(KnownRecords known, CancellationToken cancellationToken = default) =>
        JoinedElsewhere.FindAsync(new(2), known, static (_, address) => GrpcChannel.ForAddress(address), cancellationToken);

    // A node that does not answer within seconds is taken for one that is gone, and here it is not.
    private static async Task<JoinedElsewhere?> FoundAsync(KnownRecords known)
    {
        JoinedElsewhere? found = null;
        await Eventually.TrueAsync(async () => (found = await FindAsync(known)) is not null, "node 1 answers");
        return found;
    }

    // Nobody listens where nodes 2 and 3 were.
    private static IReadOnlyList<NodeRecord> NodesOf(NodeCluster cluster) =>
    [
        new NodeRecord { Node = 1, PeerAddress = cluster.PeerAddressOf(1) },
        new NodeRecord { Node = 2, PeerAddress = "http://127.0.0.1:1" },
        new NodeRecord { Node = 3, PeerAddress = "http://127.0.0.1:1" },
    ];

    private static async Task RebuildAsync(NodeCluster cluster)
    {
        var list = await cluster.Coordinator.ListAsync(cluster.Keys.Root, Never);
        foreach (var entry in list.Entries.Where(entry => CoordinatorKeys.TryParseId(entry.Key, cluster.Keys.Shards, out _)))
        {
            var record = RecordText.Parse<ShardRecord>(entry.Value!);
            (record.Recovery, record.RecoveryId, record.Generation) = (1, 7, record.Generation + RecoveryPlan.Gap);
            await cluster.Coordinator.CompareAndSetAsync(entry.Key, entry.ModRevision, RecordText.Format(record), 0, Never);
        }

        var whole = list.Entries.Single(entry => entry.Key == cluster.Keys.Cluster);
        var rebuilt = RecordText.Parse<ClusterRecord>(whole.Value!);
        (rebuilt.Recovery, rebuilt.RecoveryId) = (1, 7);
        await cluster.Coordinator.CompareAndSetAsync(whole.Key, whole.ModRevision, RecordText.Format(rebuilt), 0, Never);
    }
}
