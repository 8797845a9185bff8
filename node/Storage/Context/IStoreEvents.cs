using KvCluster.Storage.Control;
using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Context;

/// <summary>What a <c>ReplicaStore</c> tells its owner. Every method is called on the shard's writer executor and must not block.</summary>
internal interface IStoreEvents
{
    /// <summary>The longest prefix of records whose writes have completed ends here; it rises, except by a cut.</summary>
    void Durable(RecordRef record);

    /// <summary>A control state is on stable storage. One call for each <c>ReplicaStore.WriteControl</c>, in order.</summary>
    void ControlWritten(ControlState state);

    /// <summary>A cut is on stable storage: the new segment's header is synced. Appends may follow.</summary>
    void CutDone(RecordRef last);

    /// <summary>The queue went from empty to not empty, or a journal slot came free while the queue is not empty.</summary>
    void WorkQueued();

    /// <summary>Asked before an answer that is a read (a failed condition): false keeps it until <c>ReplicaStore.ReleaseReadAnswers</c>.</summary>
    bool MayAnswerReads();

    /// <summary>The engine ended. All waiters were answered <c>WriteOutcome.OutcomeUnknown</c>; only disposal is left.</summary>
    void Failed(Exception first);
}
