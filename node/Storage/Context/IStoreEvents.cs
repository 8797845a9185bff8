using KvCluster.Storage.Control;

namespace KvCluster.Storage.Context;

/// <summary>Events of a <c>ReplicaStore</c> for its owner. Every method is called on the shard's writer executor and must not block.</summary>
internal interface IStoreEvents
{
    /// <summary>The longest prefix of records whose writes have completed ends here. It increases, except on a truncation.</summary>
    void Durable(RecordRef record);

    /// <summary>A control state is durable. One call for each <c>RecordLog.WriteControl</c>, in order.</summary>
    void ControlWritten(ControlState state);

    /// <summary>A truncation is durable: the new segment's header is synced. Appends may follow.</summary>
    void Truncated(RecordRef last);

    /// <summary>
    /// Requests were queued, a lane of the journal became free while the queue is not empty, or a pause in applying committed records has ended.
    /// </summary>
    void WorkQueued();

    /// <summary>Whether read answers (such as a failed condition) may leave. False holds them until <c>GroupCommit.ReleaseReadAnswers</c>.</summary>
    bool MayAnswerReads();

    /// <summary>
    /// The engine has failed. All waiters were answered, those with appended requests with <c>WriteOutcome.OutcomeUnknown</c>; only disposal is left.
    /// </summary>
    void Failed(Exception first);
}
