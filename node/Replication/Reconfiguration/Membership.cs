using KvCluster.Internal.V1;
using KvCluster.Replication.Protocol;
using KvCluster.Replication.State;

namespace KvCluster.Replication.Reconfiguration;

/// <summary>The steps of a change of a shard's replicas, in their order.</summary>
internal enum MembershipPhase
{
    /// <summary>Reading the shard's record afresh.</summary>
    Reading,

    /// <summary>Both sets of voters decide from here on. Waiting until everything committed is durable on a majority of the new one.</summary>
    Securing,

    /// <summary>The compare-and-set is sent, and its outcome is not certain.</summary>
    Setting,

    /// <summary>Finished; <see cref="Membership.Voters"/> decide.</summary>
    Ended,
}

/// <summary>
/// One change of a shard's replicas, executed by its leader as a compare-and-set of the record. From before it is sent until its outcome is definite, commit,
/// lease and quorum reads need a majority of both sets of voters. So with either outcome every majority has what is committed. None begins before the
/// replica that becomes a voter has caught up (<c>FollowerProgress.FollowsClosely</c>).
/// </summary>
internal sealed class Membership
{
    private readonly ReplicaContext _context;
    private readonly ulong _epoch;
    private readonly long _orderId;
    private readonly ReplicaChange _change;
    private readonly Quorum _old;
    private readonly ulong _recovery;
    private readonly long _deadlineUs;
    private Quorum _new;
    private ShardRecord? _put;
    private long _readRevision;
    private ShardRecordChange? _set;
    private long _readId;
    private long _readAgainUs = long.MaxValue;

    public Membership(ReplicaContext context, ulong epoch, long orderId, ReplicaChange change, Quorum voters)
    {
        _context = context;
        _epoch = epoch;
        _orderId = orderId;
        _change = change;
        _old = _new = Voters = voters;
        _recovery = context.View.Record.Recovery;
        _deadlineUs = context.NowUs + (2 * context.Options.TimeoutMaxUs);
        Read();
    }

    public MembershipPhase Phase { get; private set; }

    /// <summary>The voters that decide now: one set, or both while the outcome is open (R27).</summary>
    public Quorum Voters { get; private set; }

    /// <summary>The next time at which something is due by the clock.</summary>
    public long DueUs => Phase switch
    {
        MembershipPhase.Reading or MembershipPhase.Securing => Math.Min(_deadlineUs, _readAgainUs),
        MembershipPhase.Setting => _set!.DueUs,
        _ => long.MaxValue,
    };

    /// <summary>Does what is due by the clock.</summary>
    public void OnTick()
    {
        // Once the compare-and-set is sent, only its outcome or the end of the leadership ends this.
        if (Phase is MembershipPhase.Reading or MembershipPhase.Securing && _context.NowUs >= _deadlineUs)
        {
            End(_old, done: false, Phase == MembershipPhase.Reading ? "the coordinator does not answer"
                : "the new voters do not have everything that is committed");
            return;
        }

        if (_context.NowUs < DueUs)
            return;
        if (Phase == MembershipPhase.Setting)
            _set!.Send();
        else
            Read();
    }

    /// <summary>The record was read. The id tells whether this change asked for it.</summary>
    public void OnRecordRead(long readId, ShardRecord? record, long revision)
    {
        if (Phase == MembershipPhase.Setting)
        {
            Settle(_set!.OnRecordRead(readId, record), record, revision);
            return;
        }

        if (readId == 0 || readId != _readId)
            return;
        _readId = 0;
        if (record is null)
            _readAgainUs = _context.NowUs + _context.Options.CoordinatorRetryUs;
        else if (Phase == MembershipPhase.Reading)
            Prepare(record, revision);
    }

    /// <summary>A compare-and-set ended. The id tells whether it is this change's.</summary>
    public void OnSetDone(long setId, SetOutcome outcome, long revision)
    {
        if (Phase != MembershipPhase.Setting)
            return;
        switch (_set!.OnSetDone(setId, outcome))
        {
            case SetOutcome.Won:
                Won(_put!, revision);
                break;
            case SetOutcome.Lost:
                Phase = MembershipPhase.Reading;
                Read();
                break;
        }
    }

    /// <summary>The record was seen, in a watch or in another's read. False if its voters are neither the old nor the new ones.</summary>
    public bool TryFollow(ShardView view)
    {
        if (view.Record.Recovery != _recovery)
            return TryEndByRecovery(view);
        if (Phase >= MembershipPhase.Setting && view.Record.Epoch == _epoch && view.Record.Generation == _put!.Generation)
            Won(view.Record, view.Revision);
        return view.Voters.SameAs(_old) || view.Voters.SameAs(_new);
    }

    /// <summary>Sends the compare-and-set once the new voters have everything committed.</summary>
    /// <param name="durableOf">What a replica has durable and matched.</param>
    public void Advance(Func<ReplicaId, Etag> durableOf)
    {
        if (Phase != MembershipPhase.Securing)
            return;
        if (_new.Agreed(durableOf) < _context.Committed)
            return;
        Phase = MembershipPhase.Setting;
        Invariant.Check(_put!.Epoch == _epoch, $"A change of replicas under epoch {_epoch} would assign epoch {_put.Epoch}.");
        _set = new ShardRecordChange(_context, _put, _readRevision, IsPut);
        _set.Send();
    }

    /// <summary>The leadership ends. A compare-and-set that was sent may still take effect; the next leader reads the record.</summary>
    public void Abandon(string why) => _context.Emit(new Effect.OrderEnded(
        _orderId, false, Phase >= MembershipPhase.Setting ? $"the outcome is unknown: {why}; check the shard's replicas" : why));

    // The record was rebuilt from the nodes, in another store that this change can no longer reach. So what it says is definite, whatever became of the set.
    private bool TryEndByRecovery(ShardView view)
    {
        if (Phase == MembershipPhase.Ended)
            return view.Voters.SameAs(Voters);
        var isPut = _put is not null && MembersOf(view.Record).SetEquals(MembersOf(_put));
        End(isPut ? _new : _old, isPut, isPut ? $"generation {view.Record.Generation}" : "the coordinator's records were rebuilt without it; try again");
        return view.Voters.SameAs(Voters);
    }

    private static HashSet<(ulong Replica, bool Learner)> MembersOf(ShardRecord record) =>
        [.. record.Replicas.Select(static replica => (replica.Replica, replica.Learner))];

    private void Read()
    {
        _readAgainUs = long.MaxValue;
        _readId = _context.NextRequestId();
        _context.ReadRecord(_readId);
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
        // From before the change is sent until its outcome is known.
        Voters = _new.SameAs(_old) ? _new : Quorum.Joint(_old, _new);
    }

    // Within an epoch only its leader raises the generation, and this is its only change in progress. Under a higher epoch the generation may be another
    // leader's, so both sets decide until this leader is fenced.
    private bool? IsPut(ShardRecord record) => record.Epoch == _epoch ? record.Generation == _put!.Generation : null;

    private void Settle(SetOutcome outcome, ShardRecord? record, long revision)
    {
        if (outcome == SetOutcome.Won)
            Won(record!, revision);
        else if (outcome == SetOutcome.Lost)
            End(_old, done: false, "another writer changed the record first; try again");
    }

    private void Won(ShardRecord record, long revision)
    {
        if (Phase == MembershipPhase.Ended)
            return;
        // A coordinator restored from a backup may accept a set that expects a record older than the one seen last. That record stays the newest.
        if (record.Epoch >= _context.View.Record.Epoch)
            _context.AdoptView(record, revision);
        End(_new, done: true, $"generation {record.Generation}");
    }

    private void End(Quorum voters, bool done, string reason)
    {
        Phase = MembershipPhase.Ended;
        Voters = voters;
        _context.Log($"{(done ? "done" : "not done")}: {_change} ({reason})");
        _context.Emit(new Effect.OrderEnded(_orderId, done, reason));
    }
}
