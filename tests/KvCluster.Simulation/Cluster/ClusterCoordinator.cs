using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;
using KvCluster.Node.Shards.Context;
using KvCluster.Replication.Protocol;

namespace KvCluster.Simulation.Cluster;

/// <summary>
/// Holds the shard's record for whole nodes and misbehaves on purpose. It is unavailable to some nodes or all, answers "unknown" for a transaction
/// that was executed, was not, or will be seconds later, reports changes late, twice or not at all, and is restored from an old backup.
/// </summary>
internal sealed class ClusterCoordinator(ClusterRun run, ShardRecord record)
{
    // The time after which the node's coordinator client gives up.
    private const long UnansweredUs = 300_000;

    // Operators add this to the revision of a backup, so that no watcher has seen a later one.
    private const long RaisedBy = 1_000;

    private readonly HashSet<NodeId> _cutOff = [];
    private (ShardRecord Record, long Revision) _backup = (record, 1);
    private (ShardRecord Record, long Revision)? _newest;
    private readonly HashSet<NodeId> _oldShown = [];
    private (ShardRecord Record, long Revision, ClusterRecord Cluster)? _old;

    public ShardRecord Record { get; private set; } = record;

    public long Revision { get; private set; } = 1;

    /// <summary>It was restored from a backup at least once.</summary>
    public bool WasRestored { get; private set; }

    /// <summary>It shows a backup that is older than what it showed before.</summary>
    public bool IsRestored => _newest is not null;

    /// <summary>Its data is lost, and not rebuilt yet.</summary>
    public bool IsLost { get; private set; }

    /// <summary>Its data was lost at least once.</summary>
    public bool WasLost { get; private set; }

    public void CutOff(NodeId node) => _cutOff.Add(node);

    public void Reconnect() => _cutOff.Clear();

    /// <summary>Keeps a copy of everything that it holds.</summary>
    public void Backup()
    {
        if (!IsRestored)
            _backup = (Record, Revision);
    }

    /// <summary>Restores the copy. Its revision goes backwards or, with <paramref name="raised"/>, above all revisions ever assigned.</summary>
    public void Restore(bool raised)
    {
        if (IsRestored || Revision == _backup.Revision)
            return;
        run.Trace($"the coordinator is restored from a backup: revision {Revision} becomes {(raised ? "greater" : _backup.Revision)}");
        run.Tally.Count(raised ? ClusterFault.RestoreCoordinatorRaised : ClusterFault.RestoreCoordinator);
        WasRestored = true;
        _newest = (Record, Revision);
        (Record, Revision) = raised ? (_backup.Record, Revision + RaisedBy) : _backup;
        if (raised)
            Tell();
    }

    /// <summary>Operators have restored what the backup lacked, above all revisions ever assigned.</summary>
    public void Repair()
    {
        if (_newest is not { } newest)
            return;
        run.Trace("the coordinator is repaired");
        Revision = Math.Max(Revision, newest.Revision) + 1;
        // If the backup was as new as the lost state, replicas may have continued from there.
        var repaired = (Record.Generation > newest.Record.Generation ? Record : newest.Record).Clone();
        if (Record.Epoch > repaired.Epoch)
            (repaired.Epoch, repaired.LeaderId, repaired.LeaderIncarnation) = (Record.Epoch, Record.LeaderId, Record.LeaderIncarnation);
        Record = repaired;
        _newest = null;
        Tell();
    }

    /// <summary>Its data is lost. What is on its way changes nothing any more, unless the lost store comes back.</summary>
    public void Lose()
    {
        run.Trace($"the coordinator's data is lost, with the record of generation {Record.Generation}");
        (IsLost, WasLost) = (true, true);
        _old = (Record, Revision, Cluster);
        _oldShown.Clear();
    }

    /// <summary>Some nodes reach the store that is lost to the others, as when an address leads to one and then to the other.</summary>
    public void ShowOld(IEnumerable<NodeId> nodes)
    {
        _oldShown.UnionWith(nodes);
        run.Trace($"the lost coordinator answers nodes {string.Join(' ', _oldShown.Order())}");
    }

    /// <summary>All nodes reach the same store again.</summary>
    public void HideOld() => _oldShown.Clear();

    /// <summary>Whether a node reaches the lost store.</summary>
    public bool ShowsOldTo(NodeId node) => _oldShown.Contains(node);

    /// <summary>The record in the lost store.</summary>
    public ShardRecord OldRecord => _old!.Value.Record;

    /// <summary>What a node finds that starts. Nothing if the data is lost and does not come back to this node.</summary>
    public (ShardRecord Record, long Revision, ClusterRecord Cluster)? FoundBy(NodeId node)
    {
        if (ShowsOldTo(node))
            return _old;
        return IsLost ? null : (Record, Revision, Cluster);
    }

    /// <summary>The cluster's record.</summary>
    public ClusterRecord Cluster { get; private set; } = new() { ClusterId = "simulated" };

    /// <summary>The records are rebuilt. Revisions begin anew, and each node joins the recovery when it looks at the cluster's record the next time.</summary>
    public void Rebuild(ClusterRecord cluster, ShardRecord record)
    {
        Cluster = cluster;
        run.Trace($"recovery {record.Recovery} rebuilds the record: epoch {record.Epoch}, leader {record.Leader:x}, generation {record.Generation}");
        IsLost = false;
        (Record, Revision) = (record, 1 + run.Random.NextInt64(10));
        foreach (var node in run.Nodes)
            run.Time.After(run.Random.NextInt64(1_500_000), () => node.Join(cluster));
        if (run.Bug == InjectedBug.OldCoordinatorFollowed)
            run.Time.After(run.Random.NextInt64(1_500_000, 4_000_000), ReturnOld);
    }

    // The number of the recovery is what keeps the nodes from following it.
    private void ReturnOld()
    {
        if (IsLost)
            return;
        run.Trace($"the old coordinator comes back, with the record of generation {OldRecord.Generation}");
        var followed = OldRecord.Clone();
        followed.Recovery = Record.Recovery;
        (Record, Revision) = (followed, Revision + RaisedBy);
        Tell();
    }

    public void Read(NodeId node, Action<ShardRecordRead> done)
    {
        if (ShowsOldTo(node))
            run.Time.After(Delay(), () => Answer(ShowsOldTo(node) ? new ShardRecordRead(_old!.Value.Record, _old.Value.Revision) : default, done));
        else if (IsLost || _cutOff.Contains(node))
            run.Time.After(UnansweredUs, () => done(new ShardRecordRead(null, 0)));
        else
            run.Time.After(Delay(), () => Answer(IsLost ? new ShardRecordRead(null, 0) : new ShardRecordRead(Record, Revision), done));
    }

    public void CompareAndSet(NodeId node, ShardRecord put, long expectedRevision, Action<CompareAndSetResult> done)
    {
        if (ShowsOldTo(node))
        {
            run.Time.After(Delay(), () =>
            {
                var won = TryPutOld(put, expectedRevision);
                Answer(new CompareAndSetResult(won ? SetOutcome.Won : SetOutcome.Lost, _old!.Value.Revision), done);
            });
            return;
        }

        if (IsLost || _cutOff.Contains(node))
        {
            run.Time.After(UnansweredUs, () => done(new CompareAndSetResult(SetOutcome.Unknown, 0)));
            return;
        }

        if (!run.Healed && run.Chance(run.Conditions.AmbiguousPermille))
        {
            var fate = run.Random.Next(3);
            if (fate != 0)
                run.Time.After(fate == 1 ? Delay() : run.Random.NextInt64(2_000_000), () => TryPut(put, expectedRevision));
            run.Time.After(2 * Delay(), () => done(new CompareAndSetResult(SetOutcome.Unknown, 0)));
            return;
        }

        run.Time.After(Delay(), () =>
        {
            var won = TryPut(put, expectedRevision);
            Answer(new CompareAndSetResult(won ? SetOutcome.Won : SetOutcome.Lost, Revision), done);
        });
    }

    /// <summary>A node has created the directory of a replica in the record, and marks that in the current record.</summary>
    public void MarkCreated(ReplicaId replica)
    {
        if (_oldShown.Count > 0 && CreatedMark.On(OldRecord, replica) is { } old)
            TryPutOld(old, _old!.Value.Revision);
        if (!IsLost && CreatedMark.On(Record, replica) is { } marked)
            TryPut(marked, Revision);
    }

    private bool TryPut(ShardRecord put, long expectedRevision)
    {
        // As the guard of a node's changes: the cluster's record has the number of the recovery.
        if (IsLost || Revision != expectedRevision || put.Recovery != Record.Recovery)
            return false;
        Record = put;
        Revision++;
        run.Trace($"revision {Revision} of the record gives epoch {put.Epoch} to replica {put.Leader:x}, generation {put.Generation}");
        Tell();
        return true;
    }

    private bool TryPutOld(ShardRecord put, long expectedRevision)
    {
        var (held, revision, cluster) = _old!.Value;
        if (revision != expectedRevision || put.Recovery != held.Recovery)
            return false;
        _old = (put, expectedRevision + 1, cluster);
        run.Trace($"revision {expectedRevision + 1} of the lost record gives epoch {put.Epoch} to replica {put.Leader:x}, generation {put.Generation}");
        foreach (var node in run.Nodes.Where(node => ShowsOldTo(node.Id)))
            run.Time.After(Delay(), () => node.RecordChanged(put, expectedRevision + 1));
        return true;
    }

    /// <summary>A node lists the record, as when its watch begins anew.</summary>
    public void TellTo(ClusterNode node)
    {
        var (told, revision) = (Record, Revision);
        if (!IsLost)
            run.Time.After(Delay(), () => node.RecordChanged(told, revision));
    }

    private void Tell()
    {
        var (told, revision) = (Record, Revision);
        foreach (var node in run.Nodes.Where(node => !_cutOff.Contains(node.Id) && !ShowsOldTo(node.Id)))
        {
            var faulty = !run.Healed && run.Chance(run.Conditions.WatchFaultPermille);
            for (var times = faulty ? run.Random.Next(3) : 1; times > 0; times--)
                run.Time.After(faulty ? run.Random.NextInt64(1_500_000) : Delay(), () => node.RecordChanged(told, revision));
        }
    }

    private void Answer<T>(T result, Action<T> done) => run.Time.After(Delay(), () => done(result));

    private long Delay() => run.Random.NextInt64(100, run.Chance(20) ? 300_000 : 3_000);
}
