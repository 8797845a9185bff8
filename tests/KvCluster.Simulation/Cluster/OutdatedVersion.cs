using KvCluster.Storage.Journal;
using KvCluster.Storage.Sessions;
using WriteRequest = KvCluster.Storage.Transactions.WriteRequest;
using Role = KvCluster.V1.ReplicaStatus.Types.Role;

namespace KvCluster.Simulation.Cluster;

/// <summary>
/// A node's version that is too old for a record. The replica must stop there with the reason, and nothing else may be affected, until its operators
/// update the node or abandon the replica.
/// </summary>
internal sealed class OutdatedVersion(ClusterRun run, ClusterNode node)
{
    private const string WhyUnreadable = "The record is of a version that this node does not know.";

    // The time until operators act.
    private const long MinUs = 600_000;
    private const long MaxUs = 2_000_000;

    // Some syncs of the slowest disk.
    private const long WrittenWithinUs = 500_000;

    private RecordRef? _unreadable;

    /// <summary>The replica cannot apply a record, or will not be able to, and no operator has acted yet.</summary>
    public bool IsActive { get; private set; }

    /// <summary>The replica has reached the record.</summary>
    public bool HasMetRecord => _unreadable is not null;

    /// <summary>It is too old for the next record that the replica applies.</summary>
    public void Begin()
    {
        run.Trace($"node {node.Id} cannot apply what comes next");
        IsActive = true;
    }

    /// <summary>Why the store cannot apply a record, or null if it can. The same record each time, also in the next process.</summary>
    public string? WhyNot(RecordRef record)
    {
        if (!IsActive)
            return null;
        if (_unreadable is null)
        {
            _unreadable = record;
            run.Time.After(run.Random.NextInt64(MinUs, MaxUs), ReplaceOrUpdate);
            node.Events.InThisProcess(NodeEvents.ToldWithinUs, () => Violation.Unless(
                node.Replica?.Failure is not null, Rule.GoesOn, $"the replica on node {node.Id} could not apply {record.Etag}, and does not say so"));
        }

        return record == _unreadable ? WhyUnreadable : null;
    }

    /// <summary>The replica has stopped with the reason. Its process and the other shard there continue.</summary>
    public void OnStopped(UnreadableRecordException failure)
    {
        run.Trace($"the replica of node {node.Id} stops: {failure.Message}");
        run.Tally.Count(ClusterFault.Outdate);
        run.Unapplied++;
        Violation.Unless(failure.Message == WhyUnreadable, Rule.GoesOn, $"the replica on node {node.Id} could not apply a record, and stops for another "
            + $"reason: {failure.Message}");
        if (node.Neighbour is { IsServing: true } neighbour)
        {
            var before = neighbour.Acknowledged;
            node.Events.InThisProcess(WrittenWithinUs, () => Violation.Unless(
                neighbour.Acknowledged > before, Rule.GoesOn, $"the other shard on node {node.Id} accepts no writes since the replica beside it stopped"));
        }

        if (node.Replica is not { } stopped)
            return;
        var request = WriteRequest.Rent();
        request.Put(ClusterData.Key(0), ClusterData.Value(0));
        var refused = stopped.Writes.SubmitAsync(request);
        Violation.Unless(
            refused.IsCompletedSuccessfully && refused.Result.Outcome == WriteOutcome.Stopped,
            Rule.GoesOn, $"the replica on node {node.Id} has stopped and does not refuse a write");
        // It also completes on the thread pool, and does not affect the course.
        node.Events.Poll(stopped.Report.StatusAsync(digest: false, detail: false, CancellationToken.None), status => Violation.Unless(
            status is { Role: Role.Failed, Failure: WhyUnreadable }, Rule.GoesOn, $"the replica on node {node.Id} has stopped, and its status is {status}"));
    }

    /// <summary>The node gets a version that knows the record, for which its process ends.</summary>
    public void Update()
    {
        run.Trace($"node {node.Id} gets a newer version");
        Forget();
        node.Crash();
    }

    /// <summary>The replica is gone.</summary>
    public void Forget() => (IsActive, _unreadable) = (false, null);

    // A rebuild does not help while the version stays. The node is updated, or an operator has the replica replaced.
    private void ReplaceOrUpdate()
    {
        if (!IsActive || node.Lost)
            return;
        if (run.Random.Next(2) == 0)
        {
            node.GiveUpReplica();
            return;
        }

        Update();
        node.Start();
    }
}
