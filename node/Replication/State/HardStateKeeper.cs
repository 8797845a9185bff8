using KvCluster.Replication.Protocol;

namespace KvCluster.Replication.State;

/// <summary>
/// The hard state that the control file should hold, the one being written, and the one that is synced. Nothing that depends on a promise happens before
/// <see cref="Synced"/> has it. At most one write is in progress, so a later state is never overtaken by an earlier one.
/// </summary>
internal sealed class HardStateKeeper
{
    /// <summary>Into so many parts an interval is divided that many shards share, because each write makes the next one of the disk wait.</summary>
    private const int PartsOfInterval = 20;

    /// <summary>A write for which nobody waits takes place in one of at most this many intervals, however many shards a node has.</summary>
    private const int EveryMax = 10;

    private readonly ShardId _shard;
    private readonly long _intervalUs;
    private HardState? _underWay;
    private bool _urgent;
    private bool _isTimeSet;
    private long _lazyAtUs;

    /// <param name="shard">The shard's id.</param>
    /// <param name="recovered">What the file holds.</param>
    /// <param name="intervalUs">Shortest time between two writes for which nobody waits.</param>
    public HardStateKeeper(ShardId shard, HardState recovered, long intervalUs)
    {
        Wanted = Synced = recovered;
        (_shard, _intervalUs) = (shard, intervalUs);
    }

    /// <summary>
    /// What the file should hold. Its promise is what this replica obeys from now on: it never goes back, and one process has an epoch's promise.
    /// </summary>
    public HardState Wanted { get; private set; }

    /// <summary>What the file is known to hold. What depends on a promise asks here (R2).</summary>
    public HardState Synced { get; private set; }

    /// <summary>The file does not hold yet what it should.</summary>
    public bool IsBehind => Wanted != Synced;

    /// <summary>While a snapshot is switched in, the file is written with it and not otherwise.</summary>
    public bool Frozen { get; private set; }

    /// <summary>Whether the promise obeyed is the promise on disk.</summary>
    public bool PromiseSynced => Synced.PromisedEpoch == Wanted.PromisedEpoch
        && Synced.PromisedLeader == Wanted.PromisedLeader
        && Synced.PromisedIncarnation == Wanted.PromisedIncarnation;

    /// <summary>Whether the file holds no acknowledged etag above this one, now and after the write in progress.</summary>
    public bool AcknowledgedAtMost(Etag etag) => Synced.Acknowledged <= etag && (_underWay is null || _underWay.Acknowledged <= etag);

    /// <summary>When a lazy write is due; <see cref="long.MaxValue"/> if there is nothing to write.</summary>
    public long DueUs => _underWay is not null || Frozen || !IsBehind ? long.MaxValue : _lazyAtUs;

    /// <summary>Sets a state that others wait for; it is written at once.</summary>
    public void Require(HardState wanted)
    {
        Note(wanted);
        _urgent = true;
    }

    /// <summary>Sets a state that only helps recovery; it is written when due, or with the next promise.</summary>
    public void Note(HardState wanted)
    {
        Invariant.Check(wanted.ReplicaId == Wanted.ReplicaId && (wanted.Removed || !Wanted.Removed), $"The hard state of replica {Wanted.ReplicaId} becomes "
            + $"that of {wanted.ReplicaId}.");
        Invariant.Check(wanted.PromisedEpoch >= Wanted.PromisedEpoch, $"The promise goes from epoch {Wanted.PromisedEpoch} to {wanted.PromisedEpoch}.");
        Invariant.Check(
            wanted.PromisedEpoch > Wanted.PromisedEpoch
                || Wanted.PromisedLeader.IsNone || (wanted.PromisedLeader, wanted.PromisedIncarnation) == (Wanted.PromisedLeader, Wanted.PromisedIncarnation),
            $"Epoch {wanted.PromisedEpoch} is promised to replica {wanted.PromisedLeader} after it was promised to {Wanted.PromisedLeader}.");
        Invariant.Check(wanted.Committed >= Wanted.Committed, $"The committed etag in the control file goes from {Wanted.Committed} to {wanted.Committed}.");
        Invariant.Check(wanted.LeaseLongestUs >= Wanted.LeaseLongestUs, $"The longest grant goes from {Wanted.LeaseLongestUs} to {wanted.LeaseLongestUs} us.");
        Wanted = wanted;
    }

    /// <summary>The write in progress is synced.</summary>
    public void Written(HardState control)
    {
        Invariant.Check(
            control.PromisedEpoch >= Synced.PromisedEpoch, $"The control file's promise goes from epoch {Synced.PromisedEpoch} to {control.PromisedEpoch}.");
        Synced = control;
        _underWay = null;
        _isTimeSet &= IsBehind;
    }

    /// <summary>A snapshot is being switched in together with this state.</summary>
    public HardState Freeze()
    {
        Invariant.Check(_underWay is null && !Frozen, "A snapshot is switched in while the control file is being written.");
        Frozen = true;
        _urgent = false;
        return Wanted;
    }

    /// <summary>A write for which nobody waits takes place in one of so many intervals.</summary>
    public int Every
    {
        private get;
        set => field = Math.Clamp(value, 1, EveryMax);
    } = 1;

    /// <summary>Whether no write is in progress, so that <see cref="Freeze"/> may be called.</summary>
    public bool Idle => _underWay is null;

    /// <summary>The snapshot is switched in, and the file holds what <see cref="Freeze"/> returned.</summary>
    public void Thaw(HardState frozen)
    {
        Invariant.Check(Frozen && frozen.PromisedEpoch >= Synced.PromisedEpoch, $"A snapshot comes with the promise of epoch {frozen.PromisedEpoch} after "
            + $"{Synced.PromisedEpoch}.");
        Synced = frozen;
        Frozen = false;
        _urgent = IsBehind;
    }

    /// <summary>Starts a write if one is needed and none is in progress.</summary>
    public void Pump(List<Effect> effects, long nowUs)
    {
        if (_underWay is not null || Frozen || !IsBehind)
            return;
        // One of many waits for its time also if its last write was long ago, because all of them may begin to work at once.
        if (Every > 1 && !_isTimeSet)
            _lazyAtUs = Math.Max(_lazyAtUs, NextUs(nowUs));
        _isTimeSet = true;
        if (!_urgent && nowUs < _lazyAtUs)
            return;
        _urgent = false;
        _lazyAtUs = Every == 1 ? nowUs + _intervalUs : NextUs(nowUs);
        _underWay = Wanted;
        effects.Add(new Effect.WriteControl(Wanted));
    }

    private long NextUs(long nowUs) => SharedIntervals.NextUs(nowUs, _intervalUs / PartsOfInterval, Every * PartsOfInterval, _shard);
}
