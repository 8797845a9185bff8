using KvCluster.Replication.Protocol;
using KvCluster.Replication.State;
using KvCluster.V1;

namespace KvCluster.Replication.Reconfiguration;

/// <summary>The steps of a change of a shard's replicas, in their order.</summary>
internal enum MembershipPhase
{
    /// <summary>Reading the shard's record afresh.</summary>
    Reading,

    /// <summary>Both sets of voters decide from here on. Waiting until everything committed is durable on a majority of the new one.</summary>
    Securing,

    /// <summary>The compare-and-set is in progress, or is repeated because its outcome is unknown.</summary>
    Setting,

    /// <summary>A repeated compare-and-set was lost. Reading whether an earlier attempt had won.</summary>
    Settling,

    /// <summary>Finished; <see cref="Membership.Voters"/> decide.</summary>
    Ended,
}

/// <summary>
/// One change of a shard's replicas, executed by its leader as a compare-and-set of the record. From before it is sent until its outcome is definite, commit,
/// lease and quorum reads need a majority of both sets of voters. So with either outcome every majority has what is committed.
/// </summary>
internal sealed class Membership
{
    private readonly ReplicaContext _context;
    private readonly ulong _epoch;
    private readonly long _orderId;
    private readonly ReplicaChange _change;
    private readonly Quorum _old;
    private readonly long _deadlineUs;
    private Quorum _new;
    private ShardRecord? _put;
    private long _readRevision;
    private long _requestId;
    private long _resendUs = long.MaxValue;
    private bool _unknown;

    public Membership(ReplicaContext context, ulong epoch, long orderId, ReplicaChange change, Quorum voters)
    {
        _context = context;
        _epoch = epoch;
        _orderId = orderId;
        _change = change;
        _old = _new = Voters = voters;
        _deadlineUs = context.NowUs + (2 * context.Options.TimeoutGreatestUs);
        Read();
    }

    public MembershipPhase Phase { get; private set; }

    /// <summary>The voters that decide now: one set, or both while the outcome is open.</summary>
    public Quorum Voters { get; private set; }

    /// <summary>The next time at which something is due by the clock.</summary>
    public long DueUs => Phase is MembershipPhase.Reading or MembershipPhase.Securing ? Math.Min(_deadlineUs, _resendUs) : _resendUs;

    /// <summary>Does what is due by the clock.</summary>
    public void OnTick()
    {
        // Once the compare-and-set is sent, only its outcome or the end of the leadership ends this.
        if (Phase is MembershipPhase.Reading or MembershipPhase.Securing && _context.NowUs >= _deadlineUs)
        {
            End(_old, done: false, Phase == MembershipPhase.Reading ? "the coordinator does not answer" : "the new voters do not have everything that is committed");
            return;
        }

        if (_context.NowUs < _resendUs)
            return;
        if (Phase == MembershipPhase.Setting)
            Attempt();
        else
            Read();
    }

    /// <summary>The record was read. The id tells whether this change asked for it.</summary>
    public void OnRecordRead(long readId, ShardRecord? record, long revision)
    {
        if (readId == 0 || readId != _requestId)
            return;
        _requestId = 0;
        if (record is null || (Phase == MembershipPhase.Settling && record.Epoch != _epoch))
        {
            // Under a higher epoch the generation may be another leader's, so both sets decide until this leader is fenced.
            _resendUs = _context.NowUs + _context.Options.CoordinatorRetryUs;
            return;
        }

        if (Phase == MembershipPhase.Reading)
            Prepare(record, revision);
        else if (Phase == MembershipPhase.Settling)
            Settle(record, revision);
    }

    /// <summary>A compare-and-set ended. The id tells whether it is this change's.</summary>
    public void OnSetDone(long setId, SetOutcome outcome, long revision)
    {
        if (Phase != MembershipPhase.Setting || setId != _requestId)
            return;
        _requestId = 0;
        switch (outcome)
        {
            case SetOutcome.Won:
                Won(_put!, revision);
                break;
            case SetOutcome.Lost:
                // This attempt put nothing, but an earlier one may have.
                Phase = _unknown ? MembershipPhase.Settling : MembershipPhase.Reading;
                Read();
                break;
            case SetOutcome.Unknown:
                _unknown = true;
                _resendUs = _context.NowUs + _context.Options.CoordinatorRetryUs;
                break;
        }
    }

    /// <summary>The record was seen, in a watch or in another's read. False if its voters are neither the old nor the new ones.</summary>
    public bool TryFollow(ShardView view)
    {
        if (Phase >= MembershipPhase.Setting && view.Record.Epoch == _epoch && view.Record.Generation == _put!.Generation)
            Won(view.Record, view.Revision);
        return view.Voters.SameAs(_old) || view.Voters.SameAs(_new);
    }

    /// <summary>Sends the compare-and-set once the new voters have everything committed.</summary>
    /// <param name="durableOf">What a replica has durable and matched.</param>
    public void Advance(Func<ulong, Etag> durableOf)
    {
        if (Phase != MembershipPhase.Securing)
            return;
        if (_new.Agreed(durableOf) < _context.Committed)
            return;
        Phase = MembershipPhase.Setting;
        Attempt();
    }

    /// <summary>The leadership ends. A compare-and-set that was sent may still take effect; the next leader reads the record.</summary>
    public void Abandon(string why) => _context.Emit(new Effect.OrderEnded(
        _orderId, false, Phase >= MembershipPhase.Setting ? $"the outcome is unknown: {why}; check the shard's replicas" : why));

    private void Read()
    {
        _resendUs = long.MaxValue;
        _requestId = _context.NextRequestId();
        _context.ReadRecord(_requestId);
    }

    private void Prepare(ShardRecord record, long revision)
    {
        if (record.Epoch != _epoch || _context.CoordinatorDoubted)
        {
            End(_old, done: false, _context.CoordinatorDoubted ? "the coordinator has gone backwards" : $"epoch {record.Epoch} was assigned in the meantime");
            return;
        }

        _put = _change.ApplyTo(record, _context.Self, out var refusal);
        if (_put is null)
        {
            End(_old, done: false, refusal);
            return;
        }

        _readRevision = revision;
        _new = ShardView.VotersOf(_put);
        Phase = MembershipPhase.Securing;
        Voters = _context.Options.Rules.WhileChanging(_old, _new);
    }

    private void Attempt()
    {
        Invariant.Check(Phase == MembershipPhase.Setting && _put is not null, $"A change of replicas is sent in phase {Phase}.");
        Invariant.Check(_put.Epoch == _epoch, $"A change of replicas under epoch {_epoch} would assign epoch {_put.Epoch}.");
        _resendUs = long.MaxValue;
        _requestId = _context.NextRequestId();
        _context.Emit(new Effect.CompareAndSet(_requestId, _put, _readRevision));
    }

    private void Settle(ShardRecord record, long revision)
    {
        // Within an epoch only its leader raises the generation, and this is its only change in progress.
        if (record.Generation == _put!.Generation)
            Won(record, revision);
        else
            End(_old, done: false, "another writer changed the record first; try again");
    }

    private void Won(ShardRecord record, long revision)
    {
        if (Phase == MembershipPhase.Ended)
            return;
        _context.AdoptView(record, revision);
        End(_new, done: true, $"generation {record.Generation}");
    }

    private void End(Quorum voters, bool done, string reason)
    {
        Phase = MembershipPhase.Ended;
        Voters = voters;
        _requestId = 0;
        _resendUs = long.MaxValue;
        _context.Log($"{(done ? "done" : "not done")}: {_change} ({reason})");
        _context.Emit(new Effect.OrderEnded(_orderId, done, reason));
    }
}
