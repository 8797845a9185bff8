using KvCluster.Replication.Protocol;

namespace KvCluster.Replication.State;

/// <summary>
/// What the control file is to hold, what is being written, and what is synced. Nothing that depends on a promise happens before
/// <see cref="Synced"/> holds it. At most one write is under way, so a later content never overtakes an earlier one.
/// </summary>
internal sealed class HardStateKeeper
{
    private readonly long _intervalUs;
    private HardState? _underWay;
    private bool _urgent;
    private long _lazyAtUs;

    public HardStateKeeper(HardState recovered, long intervalUs)
    {
        Wanted = Synced = recovered;
        _intervalUs = intervalUs;
    }

    /// <summary>What the file is to hold. Its promise is what this replica obeys from now on.</summary>
    public HardState Wanted { get; private set; }

    /// <summary>What it certainly holds.</summary>
    public HardState Synced { get; private set; }

    /// <summary>While a snapshot is switched in, the file goes with it and is not written otherwise.</summary>
    public bool Frozen { get; private set; }

    /// <summary>The promise obeyed is the promise on disk.</summary>
    public bool PromiseSynced => Synced.PromisedEpoch == Wanted.PromisedEpoch
        && Synced.PromisedLeader == Wanted.PromisedLeader
        && Synced.PromisedIncarnation == Wanted.PromisedIncarnation;

    /// <summary>The file, now and whatever write is under way, holds no acknowledged etag above this one.</summary>
    public bool AcknowledgedAtMost(Etag etag) => Synced.Acknowledged <= etag && (_underWay is null || _underWay.Acknowledged <= etag);

    /// <summary>When a lazy write is due; <see cref="long.MaxValue"/> if there is nothing to write.</summary>
    public long DueUs => _underWay is not null || Frozen || Wanted == Synced ? long.MaxValue : _lazyAtUs;

    /// <summary>Something that others wait for: write at once.</summary>
    public void Require(HardState wanted)
    {
        Wanted = wanted;
        _urgent = true;
    }

    /// <summary>Something that only helps recovery: write when due, or with the next promise.</summary>
    public void Note(HardState wanted) => Wanted = wanted;

    /// <summary>The write under way is synced.</summary>
    public void Written(HardState control)
    {
        Synced = control;
        _underWay = null;
    }

    /// <summary>A snapshot is being switched in with this content.</summary>
    public HardState Freeze()
    {
        Invariant.Check(_underWay is null, "A snapshot is switched in while the control file is written.");
        Frozen = true;
        _urgent = false;
        return Wanted;
    }

    /// <summary>Whether nothing is being written, so that <see cref="Freeze"/> may be called.</summary>
    public bool Idle => _underWay is null;

    /// <summary>The snapshot is switched in, and the file holds what <see cref="Freeze"/> gave.</summary>
    public void Thaw(HardState frozen)
    {
        Synced = frozen;
        Frozen = false;
        _urgent = Wanted != Synced;
    }

    /// <summary>Starts a write if one is needed and none is under way.</summary>
    public void Pump(List<Effect> effects, long nowUs)
    {
        if (_underWay is not null || Frozen || Wanted == Synced || (!_urgent && nowUs < _lazyAtUs))
            return;
        _urgent = false;
        _lazyAtUs = nowUs + _intervalUs;
        _underWay = Wanted;
        effects.Add(new Effect.WriteControl(Wanted));
    }
}
