using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;
using KvCluster.V1;

namespace KvCluster.Replication.State;

/// <summary>
/// What the parts of one <see cref="ReplicaCore"/> share: who this replica is, what it knows to be committed, its journal, its control
/// file, the time of the running step, and the effects that the step leaves.
/// </summary>
internal sealed class ReplicaContext
{
    private readonly Dictionary<ulong, ulong> _incarnations = [];
    private readonly Dictionary<long, Seen> _heldAtRead = [];
    private long _requestIdLast;

    public ReplicaContext(ReplicaStartup startup, IJournalView journal, ReplicationOptions options)
    {
        Shard = startup.Shard;
        Self = startup.Control.ReplicaId;
        Incarnation = startup.Incarnation;
        Options = options;
        Journal = journal;
        Random = new SeededRandom(startup.Seed);
        Control = new HardStateKeeper(startup.Control, options.ControlIntervalUs);
        View = new ShardView(startup.Record, startup.Revision);
        OwnDigest = new OwnDigest(this);
        Committed = startup.Applied;
        NowUs = startup.NowUs;
    }

    public uint Shard { get; }

    public ulong Self { get; }

    public ulong Incarnation { get; }

    public ReplicationOptions Options { get; }

    public IJournalView Journal { get; }

    public SeededRandom Random { get; }

    public HardStateKeeper Control { get; }

    public List<Effect> Effects { get; } = [];

    public OwnDigest OwnDigest { get; }

    /// <summary>How the own journal keeps up with the others'.</summary>
    public JournalPace Pace { get; } = new();

    public ShardView View { get; private set; }

    public long NowUs { get; set; }

    /// <summary>The epoch that this replica obeys; a lower one is refused.</summary>
    public ulong Promised => Control.Wanted.PromisedEpoch;

    /// <summary>The greatest epoch heard of anywhere; a new epoch goes above it.</summary>
    public ulong EpochSeen { get; set; }

    /// <summary>Known to be committed, and in this journal. Never falls.</summary>
    public Etag Committed { get; private set; }

    /// <summary>The journal ends before what this replica once acknowledged or knew committed: it neither votes nor acknowledges.</summary>
    public bool Recovering { get; set; }

    /// <summary>The own journal's disk is slow or full, as the driver judges: others should lead.</summary>
    public bool DiskImpaired { get; set; }

    /// <summary>When this process led, its trees were not those of a majority, and they have not been replaced since.</summary>
    public bool TreeDoubted { get; set; }

    /// <summary>Others should lead.</summary>
    public bool Impaired => DiskImpaired || TreeDoubted;

    /// <summary>Votes, acknowledges, grants and stands: a voter whose directory exists and whose journal is whole.</summary>
    public bool Counts => (!Recovering || Options.Rules.MayCountRecovering) && View.MayVote(Self);

    /// <summary>Takes over a newer record; an older one than is known changes nothing.</summary>
    public void AdoptView(ShardRecord record, long revision)
    {
        if (revision <= View.Revision)
            return;
        View = new ShardView(record, revision);
        Emit(new Effect.RecordAdopted(record, revision));
    }

    public void Emit(Effect effect) => Effects.Add(effect);

    public void Log(string text) => Effects.Add(new Effect.Log(text));

    /// <summary>Raises what is committed here, and has it applied and published.</summary>
    public void CommitTo(Etag etag)
    {
        if (OwnDigest.Awaited > Committed && OwnDigest.Awaited <= etag)
        {
            Apply(OwnDigest.Awaited);
            OwnDigest.Begin();
        }

        if (etag > Committed)
            Apply(etag);
    }

    /// <summary>The same, for a snapshot that already contains it, and is another state than the one before.</summary>
    public void CommittedBySnapshot(Etag etag)
    {
        Committed = Etag.Max(Committed, etag);
        OwnDigest.Forget();
        TreeDoubted = false;
    }

    /// <summary>Keeps what the control file says of progress up to date; it is written when due.</summary>
    public void NoteProgress(Etag acknowledged)
    {
        var wanted = Control.Wanted;
        // Never above the own journal: recovery would refuse to open it.
        var committed = Etag.Max(wanted.Committed, Etag.Min(Committed, Journal.Durable.Etag));
        acknowledged = Etag.Max(wanted.Acknowledged, acknowledged);
        var generation = Math.Max(wanted.Generation, View.Record.Generation);
        var revision = Math.Max(wanted.CoordinatorRevision, View.Revision);
        // Asked after every event; most change nothing here.
        if (committed == wanted.Committed && acknowledged == wanted.Acknowledged && generation == wanted.Generation && revision == wanted.CoordinatorRevision)
            return;
        Control.Note(wanted with { Committed = committed, Acknowledged = acknowledged, Generation = generation, CoordinatorRevision = revision });
    }

    /// <summary>The coordinator has shown something older than this replica had seen before: no control action until it shows otherwise.</summary>
    public bool CoordinatorDoubted { get; private set; }

    /// <summary>Ids of reads and compare-and-sets rise, so that late answers are told apart.</summary>
    public long NextRequestId() => ++_requestIdLast;

    /// <summary>Asks for the record. What was seen by now, a linearizable read sent from here on must not fall below.</summary>
    public void ReadRecord(long readId)
    {
        var (held, known) = (Control.Synced, View.Record);
        _heldAtRead[readId] = new Seen(
            Math.Max(held.CoordinatorRevision, View.Revision), Math.Max(held.Generation, known.Generation), Math.Max(held.PromisedEpoch, known.Epoch));
        Emit(new Effect.ReadRecord(readId));
    }

    /// <summary>Judges the answer to a read. False: nothing may be concluded from it.</summary>
    public bool TryTrust(long readId, ShardRecord? record, long revision)
    {
        if (!_heldAtRead.Remove(readId, out var held) || record is null)
            return record is not null;
        var doubted = revision < held.Revision || record.Generation < held.Generation || record.Epoch < held.Epoch;
        if (doubted && !CoordinatorDoubted)
        {
            Emit(new Effect.Alarm(
                $"the coordinator went backwards: revision {revision}, generation {record.Generation}, epoch {record.Epoch}; "
                + $"seen before: {held.Revision}, {held.Generation}, {held.Epoch}. No elections until it is repaired"));
        }

        CoordinatorDoubted = doubted;
        return !doubted;
    }

    private void Apply(Etag etag)
    {
        Committed = etag;
        Emit(new Effect.Commit(etag));
    }

    /// <summary>Remembers which process of a replica speaks now.</summary>
    public void Heard(ulong replica, ulong incarnation) => _incarnations[replica] = Math.Max(incarnation, _incarnations.GetValueOrDefault(replica));

    /// <summary>An envelope to another replica; the caller sets the payload.</summary>
    public Frame FrameTo(ulong receiver, ulong epoch) => new()
    {
        Shard = Shard,
        Generation = View.Record.Generation,
        Epoch = epoch,
        Sender = Self,
        SenderIncarnation = Incarnation,
        Receiver = receiver,
        ReceiverIncarnation = _incarnations.GetValueOrDefault(receiver),
    };

    /// <summary>Sends to a replica of the record; to one that is not in it, nothing can be said.</summary>
    public void Send(Frame frame)
    {
        var node = View.NodeOf(frame.Receiver);
        if (node != 0)
            Emit(new Effect.Send(node, frame));
    }

    /// <summary>What was known of the coordinator's record when a read of it was sent.</summary>
    private readonly record struct Seen(long Revision, ulong Generation, ulong Epoch);
}
