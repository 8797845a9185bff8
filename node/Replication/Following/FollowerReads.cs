using KvCluster.Internal.V1;
using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;
using KvCluster.Replication.State;

namespace KvCluster.Replication.Following;

/// <summary>
/// Linearizable reads at a replica that does not lead. After they arrive, the leader is asked for the etag up to which this replica must have applied. One
/// request is outstanding at a time and serves all reads that came before it. Reads that arrive meanwhile share the next one.
/// </summary>
internal sealed class FollowerReads(ReplicaContext context)
{
    private readonly Queue<(long ReadId, ulong Number)> _waiting = new();
    private ReplicaId _leader;
    private ulong _numberLast;
    private ulong _numberAsked;
    private long _resendUs = long.MaxValue;
    private long _deadlineUs = long.MaxValue;

    /// <summary>The next time at which something is due by the clock.</summary>
    public long DueUs => Math.Min(_resendUs, _deadlineUs);

    /// <summary>A read arrived. If <paramref name="leader"/> is 0, none is known and the read is refused.</summary>
    public void Add(long readId, ReplicaId leader)
    {
        if (leader.IsNone)
        {
            context.Emit(new Effect.ReadIndexRefused(readId));
            return;
        }

        if (leader != _leader)
            RefuseAll();
        _leader = leader;
        _waiting.Enqueue((readId, _numberLast + 1));
        if (_numberAsked == 0)
            Ask();
    }

    /// <summary>The leader's answer.</summary>
    public void OnAnswer(Frame frame)
    {
        if (_numberAsked == 0 || frame.SenderId != _leader || frame.ReadIndexAnswer.Number != _numberAsked || frame.ReceiverIncarnation != context.Incarnation)
            return;
        var last = 0L;
        while (_waiting.TryPeek(out var first) && first.Number <= _numberAsked)
            last = _waiting.Dequeue().ReadId;
        Invariant.Check(last != 0, $"The leader has answered request {_numberAsked}, for which no read waits.");
        _numberAsked = 0;
        _resendUs = _deadlineUs = long.MaxValue;
        context.Emit(new Effect.ReadIndexKnown(last, frame.ReadIndexAnswer.Committed.FromWire()));
        if (_waiting.Count > 0)
            Ask();
    }

    /// <summary>Does what is due by the clock.</summary>
    public void OnTick()
    {
        if (context.NowUs >= _deadlineUs)
            RefuseAll();
        else if (context.NowUs >= _resendUs)
            Send();
    }

    /// <summary>The leader changed or does not answer. Callers have to read elsewhere.</summary>
    public void RefuseAll()
    {
        if (_waiting.Count > 0)
            context.Emit(new Effect.ReadIndexRefused(_waiting.Last().ReadId));
        _waiting.Clear();
        _numberAsked = 0;
        _resendUs = _deadlineUs = long.MaxValue;
    }

    private void Ask()
    {
        _numberAsked = ++_numberLast;
        _deadlineUs = context.NowUs + context.Options.TimeoutMinUs;
        Send();
    }

    private void Send()
    {
        _resendUs = context.NowUs + context.Options.HeartbeatIntervalUs;
        var frame = context.FrameTo(_leader, context.Promised);
        frame.ReadIndex = new ReadIndex { Number = _numberAsked };
        context.Send(frame);
    }
}
