using KvCluster.Internal.V1;
using KvCluster.Replication.Log;

namespace KvCluster.Replication.State;

/// <summary>
/// What this replica promises to others: grants to its leader, and answers to Prepare. A grant is a promise neither to prepare a higher epoch nor to
/// campaign. A Prepare that arrives during a grant is held until it ends.
/// </summary>
internal sealed class Promises
{
    // A request for a longer grant is refused, because it could stop elections for any length of time.
    private const long GrantUsMax = 60_000_000;

    private readonly ReplicaContext _context;
    private Frame? _held;
    private ReplicaId _answerTo;

    // The leader of the promised epoch has released the grants of all rounds up to this one (R25).
    private ulong _releasedRound;

    public Promises(ReplicaContext context)
    {
        _context = context;
        // The grants of the process before are not known, only the length of the longest one.
        GrantEndUs = context.NowUs + context.Control.Synced.LeaseLongestUs;
    }

    /// <summary>
    /// Until then this replica neither prepares a higher epoch nor campaigns. Only a release of the promised leader makes it earlier (R13, R25).
    /// </summary>
    public long GrantEndUs { get; private set; }

    /// <summary>Whether no grant runs.</summary>
    public bool Free => _context.NowUs >= GrantEndUs;

    /// <summary>When a held Prepare can be handled; <see cref="long.MaxValue"/> if none is held.</summary>
    public long DueUs => _held is null ? long.MaxValue : GrantEndUs;

    /// <summary>Grants the lease that a heartbeat asks for. False if not now; the leader asks again with the next heartbeat.</summary>
    /// <param name="isCampaigning">This replica has a compare-and-set in progress that may make it a candidate.</param>
    public bool TryGrant(Heartbeat heartbeat, bool isCampaigning)
    {
        var leaseUs = (long)heartbeat.LeaseUs;
        if (leaseUs is <= 0 or > GrantUsMax || heartbeat.Round <= _releasedRound || _held is not null || isCampaigning || _context.Recovering)
            return false;
        var lengthUs = _context.Options.LengthenedByDrift(leaseUs);
        if (_context.Control.Synced.LeaseLongestUs < lengthUs)
        {
            // The wait after a restart must cover this grant, so its length is synced first.
            if (_context.Control.Wanted.LeaseLongestUs < lengthUs)
                _context.Control.Require(_context.Control.Wanted with { LeaseLongestUs = lengthUs });
            return false;
        }

        Invariant.Check(
            _context.Control.PromiseSynced, $"A lease is granted in epoch {_context.Promised}, but epoch {_context.Control.Synced.PromisedEpoch} is synced.");
        GrantEndUs = Math.Max(GrantEndUs, _context.NowUs + lengthUs);
        return true;
    }

    /// <summary>
    /// The promised leader no longer serves in its epoch. Grants for its rounds up to this one are void, even if the heartbeats arrive later. So are those
    /// to leaders before it, which have had no majority since it was prepared.
    /// </summary>
    public void Release(ulong round)
    {
        _releasedRound = Math.Max(_releasedRound, round);
        GrantEndUs = Math.Min(GrantEndUs, _context.NowUs);
    }

    /// <summary>Holds a Prepare until the running grant ends; of several, the one with the highest epoch.</summary>
    public void Hold(Frame prepare)
    {
        Invariant.Check(prepare.Epoch > _context.Promised, $"A Prepare for epoch {prepare.Epoch} is held, but epoch {_context.Promised} is promised.");
        if (_held is null || _held.Epoch < prepare.Epoch)
            _held = prepare;
    }

    /// <summary>Returns a held Prepare once no grant runs, if its epoch is still above the promise.</summary>
    public bool TryRelease(out Frame prepare)
    {
        prepare = _held!;
        if (_held is null || !Free)
            return false;
        _held = null;
        return prepare.Epoch > _context.Promised;
    }

    /// <summary>The promise rose. A held Prepare that it covers is dropped, and so is an answer owed for a lower epoch.</summary>
    public void PromiseRose()
    {
        _answerTo = ReplicaId.None;
        // Rounds are numbered from the start in each epoch.
        _releasedRound = 0;
        if (_held is not null && _held.Epoch <= _context.Promised)
            _held = null;
    }

    /// <summary>Notes that the candidate of the promised epoch is owed an answer, which is given when the promise is synced.</summary>
    public void OweAnswer(ReplicaId candidate) => _answerTo = candidate;

    /// <summary>Answers a Prepare if due. The durable etag is read now, because nothing was acknowledged in a lower epoch since the promise rose.</summary>
    /// <param name="journalBusy">A truncation or an installation is in progress, so the durable record may change.</param>
    public void Answer(bool journalBusy)
    {
        if (_answerTo.IsNone || !_context.Control.PromiseSynced || journalBusy || !_context.Counts)
            return;
        var synced = _context.Control.Synced;
        Invariant.Check(synced.PromisedLeader == _answerTo, $"Replica {_answerTo} is told of a promise to replica {synced.PromisedLeader}.");
        // The wanted state is read here, because the end of a recovery lowers the acknowledged etag in this same step, before that is synced.
        var acknowledged = _context.Control.Wanted.Acknowledged;
        Invariant.Check(
            _context.Recovering || _context.Journal.Durable.Etag >= acknowledged,
            $"A promise names {_context.Journal.Durable.Name}, but {acknowledged} was acknowledged.");
        var frame = _context.FrameTo(_answerTo, _context.Promised);
        frame.Prepared = new Prepared { Last = _context.Journal.Durable.Name.ToWire() };
        _context.Send(frame);
        _answerTo = ReplicaId.None;
    }
}
