using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;
using KvCluster.Node.Hosting;
using KvCluster.Node.Shards;
using KvCluster.Replication.Log;
using KvCluster.Storage.Control;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;

namespace KvCluster.Node.CoordinatorRecovery;

/// <summary>
/// Tells what this node knows of the coordinator's records and what its replicas have promised, whether they run or the node still waits for its coordinator.
/// It changes nothing but the promise that makes a report binding. Called on the thread pool.
/// </summary>
/// <param name="node">This node.</param>
/// <param name="directory">Its data directory.</param>
/// <param name="hosted">Its replicas; null while it waits.</param>
/// <param name="coordinator">Its coordinator, not guarded.</param>
/// <param name="keys">The cluster's keys.</param>
/// <param name="hears">The nodes whose streams it hears.</param>
internal sealed class NodeReporter(
    NodeId node, NodeDirectory directory, ShardHost? hosted, ICoordinator coordinator, CoordinatorKeys keys, Func<IEnumerable<NodeId>> hears)
{
    /// <summary>Together with <see cref="ConfirmTimeMax"/> less than the asking node waits.</summary>
    private static readonly TimeSpan CoordinatorTimeMax = TimeSpan.FromSeconds(2);

    /// <summary>Long for a round of heartbeats, and short for an operator. A leader without its majority is reported as one that does not lead.</summary>
    private static readonly TimeSpan ConfirmTimeMax = TimeSpan.FromSeconds(2);

    /// <summary>The report.</summary>
    /// <param name="claim">The recovery to which the node binds itself before, if its coordinator has the same claim; null: none.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="StorageIoException">The promise could not be written. Nothing was promised.</exception>
    public async Task<NodeReport> ReportAsync(RecoveryClaim? claim, CancellationToken cancellationToken)
    {
        var (state, found) = await AskCoordinatorAsync(cancellationToken).ConfigureAwait(false);
        // A caller that has gone away may have released this node already, so its request must not bind the node again.
        cancellationToken.ThrowIfCancellationRequested();
        // Whatever is read from here on cannot change any more before the recovery is complete.
        var unbound = claim is null ? null : WhyNot(claim, state, found) ?? directory.Known.TryBind(claim);
        var report = new NodeReport
        {
            Node = node.Value, Starts = directory.Starts.Put, Nodes = { directory.Known.Nodes }, Coordinator = state,
            Unbound = unbound ?? "", Hears = { hears().Select(static other => other.Value) }
        };
        if (directory.Known.Bound is { } bound)
            report.Bound = bound;
        if (directory.Known.Cluster is { } cluster)
            report.Cluster = cluster;
        var records = directory.Known.Shards.ToDictionary(static record => record.ShardId);
        var running = await Task.WhenAll(directory.ListShards().Order().Select(shard => ReadAsync(shard, cancellationToken))).ConfigureAwait(false);
        foreach (var (replica, record) in running)
        {
            report.Replicas.Add(replica);
            // A running replica goes by a record that is on the disk too, but knows which directories exist, and who leads.
            if (record is not null && (!records.TryGetValue(record.ShardId, out var kept) || record.Rank.CompareTo(kept.Rank) >= 0))
                records[record.ShardId] = record;
        }
        report.Shards.AddRange(records.Values.OrderBy(static record => record.Shard));
        return report;
    }

    /// <summary>Only which recovery the node has joined. Asks nobody.</summary>
    public NodeReport ReportCluster()
    {
        var report = new NodeReport { Node = node.Value };
        if (directory.Known.Cluster is { } cluster)
            report.Cluster = cluster;
        return report;
    }

    /// <summary>The recovery of this claim will not be complete.</summary>
    /// <exception cref="StorageIoException">The promise remains until its time is over.</exception>
    public void Release(RecoveryClaim claim) => directory.Known.Release(claim);

    private static string? WhyNot(RecoveryClaim claim, CoordinatorState state, RecoveryClaim? found) => state.Error.Length > 0 ? state.Error
        : claim.Equals(found) ? null
        : "its coordinator is another store than that of the node that rebuilds the records, or somebody else rebuilds them";

    // Asked anew, because the node's own access may be under an alarm about the store before.
    private async Task<(CoordinatorState State, RecoveryClaim? Claim)> AskCoordinatorAsync(CancellationToken cancellationToken)
    {
        using var limit = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
        limit.CancelAfter(CoordinatorTimeMax);
        var anew = coordinator.Anew();
        await using (anew.ConfigureAwait(false))
        {
            try
            {
                var cluster = await anew.GetAsync(keys.Cluster, limit.Token).ConfigureAwait(false);
                var claim = await anew.GetAsync(keys.Recovery, limit.Token).ConfigureAwait(false);
                return (new CoordinatorState { Cluster = cluster.Value ?? "", ClusterRevision = cluster.ModRevision }, claim.Value is null ? null
                    : RecordText.Parse<RecoveryClaim>(claim.Value));
            }
            catch (OperationCanceledException) when (!cancellationToken.IsCancellationRequested)
            {
                return (new CoordinatorState { Error = "its coordinator does not answer" }, null);
            }
            catch (Exception failure) when (failure is CoordinatorUnavailableException or CoordinatorAlarmException or CoordinatorRecordException)
            {
                return (new CoordinatorState { Error = OneLine.Of(failure.Message) }, null);
            }
        }
    }

    private async Task<(KeptReplica Replica, ShardRecord? Record)> ReadAsync(ShardId shard, CancellationToken cancellationToken)
    {
        if (hosted?.Find(shard)?.Replica is not { } replica)
            return (ReadDirectory(shard), null);
        if (replica.Failure is { } failure)
            return (Of(shard, replica.Store.Durable.Control, failure.Message), null);
        var seen = await replica.Report.PromisesAsync().ConfigureAwait(false);
        if (seen is null)
            return (Of(shard, replica.Store.Durable.Control, "it has stopped"), null);
        return (Of(shard, seen, seen.Leads && await LeadsOnAsync(replica, seen.Epoch, cancellationToken).ConfigureAwait(false)), seen.Record);
    }

    /// <summary>A replica that runs.</summary>
    /// <param name="shard">Its shard.</param>
    /// <param name="seen">What binds it.</param>
    /// <param name="leadsOn">Whether a majority has confirmed since that it leads.</param>
    internal static KeptReplica Of(ShardId shard, ReplicaPromises seen, bool leadsOn)
    {
        var kept = Of(shard, seen.Control, damage: "");
        (kept.PromisedEpoch, kept.Generation, kept.Recovery) =
            (Math.Max(kept.PromisedEpoch, seen.Epoch), Math.Max(kept.Generation, seen.Record.Generation), Math.Max(kept.Recovery, seen.Record.Recovery));
        if (seen.Epoch > seen.Control.PromisedEpoch)
            kept.PromisedLeader = 0;
        if (leadsOn)
            (kept.LeadsEpoch, kept.Incarnation) = (seen.Epoch, seen.Incarnation);
        return kept;
    }

    // A majority has not promised a higher epoch when it answers a round that is sent now.
    private static async Task<bool> LeadsOnAsync(ShardReplica replica, ulong epoch, CancellationToken cancellationToken)
    {
        using var limit = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
        limit.CancelAfter(ConfirmTimeMax);
        try
        {
            return await replica.Reads.ConfirmAsync(limit.Token).ConfigureAwait(false) is not null
                && await replica.Report.PromisesAsync().ConfigureAwait(false) is { Leads: true } still && still.Epoch == epoch;
        }
        catch (OperationCanceledException) when (!cancellationToken.IsCancellationRequested)
        {
            return false;
        }
    }

    private KeptReplica ReadDirectory(ShardId shard)
    {
        var path = directory.ShardPath(shard);
        try
        {
            if (ControlFile.StateOf(LocalDisk.Instance, path) is { } state)
                return Of(shard, state, LocalDisk.Instance.FileExists(new StoreLayout(path).Quarantined) ? "it was taken out of service" : "");
        }
        catch (Exception unreadable) when (unreadable is StorageIoException or FormatVersionException)
        {
            return new KeptReplica { Shard = shard.Value, Damage = OneLine.Of(unreadable.Message) };
        }
        return new KeptReplica { Shard = shard.Value, Damage = "its control file is missing or damaged" };
    }

    /// <summary>A replica's directory.</summary>
    /// <param name="shard">Its shard.</param>
    /// <param name="state">Its control file.</param>
    /// <param name="damage">Why its content does not count; empty if it does.</param>
    internal static KeptReplica Of(ShardId shard, ControlState state, string damage) => new()
    {
        Shard = shard.Value,
        Replica = state.ReplicaId.Value,
        PromisedEpoch = state.PromisedEpoch,
        PromisedLeader = state.PromisedLeader.Value,
        Generation = state.Generation,
        Recovery = state.Recovery,
        LeaseLongestMs = (ulong)state.LeaseLongestMs,
        Removed = state.Removed,
        Damage = OneLine.Of(damage),
        Committed = state.Committed.ToWire(),
    };
}
