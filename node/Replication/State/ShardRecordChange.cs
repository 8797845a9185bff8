using KvCluster.Internal.V1;
using KvCluster.Replication.Protocol;

namespace KvCluster.Replication.State;

/// <summary>
/// One compare-and-set of the shard's record, from its first attempt until its outcome is certain: the claim of an epoch, or a change of the replicas. Called
/// within the core's steps.
/// </summary>
/// <param name="context">The replica.</param>
/// <param name="put">The record to put. Not modified afterwards.</param>
/// <param name="revision">The mod revision that it replaces.</param>
/// <param name="isPut">Whether a record that was read shows that this one was put, by an attempt without an answer; null if that record does not tell.</param>
internal sealed class ShardRecordChange(ReplicaContext context, ShardRecord put, long revision, Func<ShardRecord, bool?> isPut)
{
    private SetAttempts _attempts;
    private long _requestId;

    /// <summary>Whether an attempt had no answer, so that the record may have been put.</summary>
    public bool IsInDoubt => _attempts.IsInDoubt;

    /// <summary>A repeated attempt was lost. Reading whether an earlier one had won.</summary>
    public bool IsSettling { get; private set; }

    /// <summary>When the next attempt, or read, is due.</summary>
    public long DueUs { get; private set; } = long.MaxValue;

    /// <summary>Sends the first attempt, or what is due.</summary>
    public void Send()
    {
        DueUs = long.MaxValue;
        _requestId = context.NextRequestId();
        if (IsSettling)
            context.ReadRecord(_requestId);
        else
            context.Emit(new Effect.CompareAndSet(_requestId, put, revision));
    }

    /// <summary>A compare-and-set ended. The id tells whether it is this one's.</summary>
    /// <returns>Unknown as long as the outcome is not certain.</returns>
    public SetOutcome OnSetDone(long setId, SetOutcome outcome)
    {
        if (IsSettling || setId != _requestId)
            return SetOutcome.Unknown;
        _requestId = 0;
        switch (_attempts.Next(outcome))
        {
            case SetStep.Won:
                return SetOutcome.Won;
            case SetStep.Lost:
                return SetOutcome.Lost;
            case SetStep.Read:
                IsSettling = true;
                Send();
                return SetOutcome.Unknown;
            default:
                Pause();
                return SetOutcome.Unknown;
        }
    }

    /// <summary>The record was read. The id tells whether this asked for it.</summary>
    /// <returns>Unknown as long as the outcome is not certain.</returns>
    public SetOutcome OnRecordRead(long readId, ShardRecord? record)
    {
        if (!IsSettling || readId == 0 || readId != _requestId)
            return SetOutcome.Unknown;
        _requestId = 0;
        switch (record is null ? null : isPut(record))
        {
            case true:
                return SetOutcome.Won;
            case false:
                return SetOutcome.Lost;
            default:
                Pause();
                return SetOutcome.Unknown;
        }
    }

    private void Pause() => DueUs = context.NowUs + context.Options.CoordinatorRetryUs;
}
