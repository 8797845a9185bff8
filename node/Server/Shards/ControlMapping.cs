using KvCluster.Replication.Protocol;
using KvCluster.Storage.Control;

namespace KvCluster.Node.Shards;

/// <summary>Converts the contents of the control file between the forms of storage and protocol. Identity that the protocol never changes is kept.</summary>
internal static class ControlMapping
{
    private const long MicrosecondsPerMillisecond = 1_000;

    public static HardState ToRecord(this ControlState state) => new()
    {
        ReplicaId = state.ReplicaId,
        PromisedEpoch = state.PromisedEpoch,
        PromisedLeader = state.PromisedLeader,
        PromisedIncarnation = state.PromisedIncarnation,
        Committed = state.Committed,
        Acknowledged = state.Acknowledged,
        Generation = state.Generation,
        CoordinatorRevision = state.CoordinatorRevision,
        Recovery = state.Recovery,
        LeaseLongestUs = state.LeaseLongestMs * MicrosecondsPerMillisecond,
        Removed = state.Removed,
    };

    /// <summary>The state updated from <paramref name="record"/>. The longest lease is rounded up, because waiting longer is safe.</summary>
    public static ControlState With(this ControlState state, HardState record) => state with
    {
        PromisedEpoch = record.PromisedEpoch,
        PromisedLeader = record.PromisedLeader,
        PromisedIncarnation = record.PromisedIncarnation,
        Committed = record.Committed,
        Acknowledged = record.Acknowledged,
        Generation = record.Generation,
        CoordinatorRevision = record.CoordinatorRevision,
        Recovery = record.Recovery,
        LeaseLongestMs = (record.LeaseLongestUs + MicrosecondsPerMillisecond - 1) / MicrosecondsPerMillisecond,
        Removed = record.Removed,
    };
}
