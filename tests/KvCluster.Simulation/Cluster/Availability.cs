using KvCluster.Internal.V1;

namespace KvCluster.Simulation.Cluster;

/// <summary>
/// Checks that callers are served whenever a replica can serve them. With a leader and a majority that work and reach each other nobody waits for
/// long, whatever has happened before.
/// </summary>
internal sealed class Availability(ClusterRun run, ClusterHistory history)
{
    private const long IntervalUs = 100_000;

    // A new leader may step down once more, or wait for grants of its former process, and callers find it by trial.
    private const long UnservedMaxUs = 3_000_000;

    private long _calmSinceUs;
    private ulong _calmLeader;

    /// <summary>
    /// Whether a leader serves that works and reaches a majority that works, and their disks are not slow and do not still write what they began while they
    /// were.
    /// </summary>
    public bool HasPromptLeader => Leader(static node => !node.Disk.MayWriteSlowly) is not null;

    public void Start() => run.Time.After(IntervalUs, Look);

    private void Look()
    {
        var leader = Leader();
        if (leader is null || leader.Epoch != _calmLeader)
            (_calmSinceUs, _calmLeader) = (run.NowUs, leader?.Epoch ?? 0);
        var since = Math.Max(_calmSinceUs, history.ServedUs);
        Violation.Unless(
            run.NowUs - since <= UnservedMaxUs,
            Rule.Available, $"node {leader?.Id} leads a majority that works, and has served no caller for {(run.NowUs - since) / 1_000} ms");
        Start();
    }

    // One replica may be missing. During a change of the replicas both sets decide, and then none may be missing.
    private ClusterNode? Leader(Func<ClusterNode, bool>? isFit = null)
    {
        var replicas = run.Coordinator.Record.Replicas;
        var leader = run.Nodes.Where(static node => node.Serves).MaxBy(static node => node.Epoch);
        if (leader is null || !leader.Works || isFit?.Invoke(leader) == false || run.Coordinator.IsRestored || run.Coordinator.IsLost)
            return null;
        var missing = replicas.Count(replica => !Reaches(leader, replica) || isFit?.Invoke(run.NodeOf(replica.NodeId)) == false);
        return missing <= (replicas.Any(static replica => replica.Learner) ? 0 : 1) && replicas.Count >= ClusterRun.ReplicaCount ? leader : null;
    }

    private bool Reaches(ClusterNode leader, ReplicaRecord replica)
    {
        var node = run.NodeOf(replica.NodeId);
        return node.ReplicaId == replica.ReplicaId && node.Works && !run.Network.IsCut(leader.Id, node.Id) && !run.Network.IsCut(node.Id, leader.Id);
    }
}
