using KvCluster.Internal.V1;
using KvCluster.Replication.Protocol;

namespace KvCluster.Replication.State;

/// <summary>
/// When this replica last heard a leader, and how long that leader may be silent before anyone should campaign. Called within the core's steps.
/// </summary>
internal sealed class LeaderContact(long heardUs)
{
    // A larger value from a leader is capped at this, because it would keep every follower from campaigning.
    private const ulong QuiescentUsMax = 60_000_000;

    private long _heardUs = heardUs;

    /// <summary>How much longer than others the leader may be silent, because it is quiescent or one of many on its node; 0 if it is neither.</summary>
    public long QuiescentUs { get; private set; }

    /// <summary>A frame of the promised leader arrived.</summary>
    public void Heard(Frame frame, ReplicationOptions options, long nowUs)
    {
        _heardUs = nowUs;
        // Three of its heartbeats, because its stream may drop one. If its node is gone, NodeSilent says so sooner. A leader that sends something else is not
        // quiescent, but may be one of many on its node.
        QuiescentUs = frame.Heartbeat is { } beat ? 3 * (long)Math.Min(beat.RestUs, QuiescentUsMax)
            : Math.Min(QuiescentUs, 3 * (options.HeartbeatsEveryMax - 1) * options.HeartbeatIntervalUs);
    }

    /// <summary>The leader, or another one, is expected to be heard within the ordinary time again. False if it was anyway.</summary>
    public bool TryEndQuiescence()
    {
        var wasQuiescent = QuiescentUs != 0;
        QuiescentUs = 0;
        return wasQuiescent;
    }

    /// <summary>Whether no leader was heard within the shortest election timeout.</summary>
    public bool IsSilent(ReplicationOptions options, long nowUs) => nowUs - _heardUs >= options.TimeoutMinUs + QuiescentUs;

    /// <summary>Whether a leader was heard within the longest one. For status and metrics.</summary>
    public bool HasLeader(ReplicationOptions options, long nowUs) => nowUs - _heardUs < options.TimeoutMaxUs + QuiescentUs;
}
