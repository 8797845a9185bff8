using KvCluster.Node;
using KvCluster.Node.Configuration;
using KvCluster.Node.Coordination;
using KvCluster.Node.Coordination.Embedded;
using KvCluster.Node.CoordinatorRecovery;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.Tests.ServiceDefaults.Security;

namespace KvCluster.Tests.Node;

/// <summary>What a node says while it waits for its cluster.</summary>
public sealed class ClusterEntryTests
{
    /// <summary>A node that was restarted after the loss said so at level Information only, and nothing at all with log-level warning.</summary>
    [Theory]
    [InlineData(false, 1)]
    [InlineData(true, 0)]
    public async Task Wait_WithoutTheClustersRecord_RaisesTheAlarmOnce_UnlessTheDirectoryIsNew(bool isNew, int alarms)
    {
        using var folder = new TemporaryDirectory();
        await using var coordinator = EmbeddedCoordinator.Open(Path.Combine(folder.Path, "coordinator"), TimeProvider.System);
        await using var counted = new Counted(coordinator);
        var options = new NodeOptions { Node = new(1), DataDirectory = folder.Path, Listen = "http://127.0.0.1:0" };
        var log = new LinesLog();
        using var stop = new CancellationTokenSource();
        var entry = new ClusterEntry(options, counted, new CoordinatorKeys("local"), new ProcessHealth(), log);
        var entering = entry.WaitForClusterAsync(
            mayCreate: isNew, known: null, static () => Task.FromResult<JoinedElsewhere?>(null), static () => Task.CompletedTask, stop.Token);

        await Eventually.TrueAsync(() => counted.Reads > 2, "it has asked again");
        await stop.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => entering);

        Assert.Equal(alarms, log.Lines.Length);
        Assert.All(log.Lines, static line => Assert.StartsWith(
            "Critical: ALARM: the coordinator is not followed: it has no record of the cluster, so its data is lost. The node waits", line,
            StringComparison.Ordinal));
    }

    private sealed class Counted(ICoordinator inner) : PassingCoordinator(inner)
    {
        private int _reads;

        public int Reads => Volatile.Read(ref _reads);

        public override Task<CoordinatorRead> GetAsync(string key, CancellationToken cancellationToken)
        {
            Interlocked.Increment(ref _reads);
            return base.GetAsync(key, cancellationToken);
        }
    }
}
