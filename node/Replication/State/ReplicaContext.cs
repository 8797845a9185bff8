using KvCluster.Internal.V1;
using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;

namespace KvCluster.Replication.State;

/// <summary>
/// What the parts of one <see cref="ReplicaCore"/> share: the replica's identity, what it knows to be committed, its journal, its hard state, the time of the
/// running step, and the effects of that step.
/// </summary>
internal sealed class ReplicaContext
{
    private readonly Dictionary<ReplicaId, ulong> _incarnations = [];
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
        Control = new HardStateKeeper(startup.Shard, startup.Control, options.ControlIntervalUs);
        View = new ShardView(startup.Record, startup.Revision);
        OwnDigest = new OwnDigest(this);
        ShardTimes = new ShardTimes(this);
        Committed = startup.Applied;
        NowUs = startup.NowUs;
        var control = startup.Control;
        // At start the promise is at least the epoch of the last record. The shard's record tells who led it.
        if (journal.Last.Etag.Epoch > control.PromisedEpoch)
            Control.Require(control with { PromisedEpoch = journal.Last.Etag.Epoch, PromisedLeader = ReplicaId.None, PromisedIncarnation = 0 });
        Recovering = journal.Last.Etag < Etag.Max(control.Committed, control.Acknowledged);
        EpochSeen = Math.Max(Promised, startup.Record.Epoch);
    }

    public ShardId Shard { get; }

    public ReplicaId Self { get; }

    public ulong Incarnation { get; }

    public ReplicationOptions Options { get; }

    public IJournalView Journal { get; }

    public SeededRandom Random { get; }

    public HardStateKeeper Control { get; }

    public List<Effect> Effects { get; } = [];

    public OwnDigest OwnDigest { get; }

    /// <summary>What leaders have said of the shard time.</summary>
    public ShardTimes ShardTimes { get; }

    /// <summary>How this replica's journal compares in speed with the others'.</summary>
    public JournalPace Pace { get; } = new();

    public ShardView View { get; private set; }

    public long NowUs { get; set; }

    /// <summary>In one of how many intervals a leader that is not quiescent sends heartbeats, at least one and at most what the options allow.</summary>
    public int HeartbeatsEvery
    {
        get;
        set => field = Math.Clamp(value, 1, Options.HeartbeatsEveryMax);
    } = 1;

    /// <summary>The epoch that this replica obeys. Frames of a lower one are refused.</summary>
    public ulong Promised => Control.Wanted.PromisedEpoch;

    /// <summary>The greatest epoch seen anywhere, at least the promised one. It never decreases, and a new epoch is greater.</summary>
    public ulong EpochSeen
    {
        get;
        set
        {
            Invariant.Check(value >= field && value >= Promised, $"The greatest epoch seen goes from {field} to {value}, and epoch {Promised} is promised.");
            field = value;
        }
    }

    /// <summary>Known to be committed, and in this journal; of no higher epoch than the promise. Never decreases (R10).</summary>
    public Etag Committed { get; private set; }

    /// <summary>
    /// The journal ends before what this replica once acknowledged or knew to be committed. Such a replica neither votes nor acknowledges (R4).
    /// </summary>
    public bool Recovering { get; set; }

    /// <summary>The driver judges this replica's journal disk to be slow or full. Others should lead.</summary>
    public bool DiskImpaired { get; set; }

    /// <summary>When this process led, its trees differed from those of a majority, and they have not been replaced since.</summary>
    public bool TreeDoubted { get; set; }

    /// <summary>Whether others should lead.</summary>
    public bool Impaired => DiskImpaired || TreeDoubted;

    /// <summary>
    /// Whether this replica votes, acknowledges, grants and campaigns: it is a voter, its directory exists, and its journal has everything it acknowledged.
    /// </summary>
    public bool Counts => !Recovering && View.MayVote(Self);

    /// <summary>Whether this is the first leader of a new shard, which campaigns at once.</summary>
    public bool CampaignsFirst => View.IsFirstLeader(Self) && EpochSeen == 0;

    /// <summary>Adopts a newer record. One that is not newer changes nothing.</summary>
    public void AdoptView(ShardRecord record, long revision)
    {
        if (RecordVersion.Of(record, revision) <= View.Version)
            return;
        Invariant.Check(
            record.Generation >= View.Record.Generation && record.Epoch >= View.Record.Epoch,
            $"The shard's record goes from generation {View.Record.Generation} and epoch {View.Record.Epoch} to {record.Generation} and {record.Epoch}.");
        View = new ShardView(record, revision);
        Emit(new Effect.RecordAdopted(record, revision));
    }

    public void Emit(Effect effect) => Effects.Add(effect);

    /// <summary>Appends the bodies that follow the journal's last record.</summary>
    public void Append(in TailMatch match)
    {
        Invariant.Check(match.Fit == TailFit.Fits && match.Common == Journal.Last.Name, $"Bodies that follow {match.Common} are appended to a journal that "
            + $"ends at {Journal.Last.Name}.");
        Invariant.Check(match.End.Etag > match.Common.Etag && match.End.Etag.Epoch <= Promised, $"Bodies up to {match.End} are appended after {match.Common}, "
            + $"and epoch {Promised} is promised.");
        Emit(new Effect.AppendBodies(match.New));
    }

    public void Log(string text) => Effects.Add(new Effect.Log(text));

    /// <summary>Raises the committed etag and has the records up to it applied and published, with a pause at a record whose digest is wanted.</summary>
    public void CommitTo(Etag etag)
    {
        Invariant.Check(etag.Epoch <= Promised, $"A record of epoch {etag.Epoch} is committed, but epoch {Promised} is promised.");
        if (OwnDigest.Awaited > Committed && OwnDigest.Awaited <= etag)
        {
            Apply(OwnDigest.Awaited);
            OwnDigest.Begin();
        }

        if (etag > Committed)
            Apply(etag);
    }

    /// <summary>Raises the committed etag to that of an installed snapshot, which already contains those records and replaces the state before.</summary>
    public void CommittedBySnapshot(Etag etag)
    {
        Invariant.Check(etag >= Committed, $"A snapshot at {etag} replaces a state in which {Committed} is committed.");
        Invariant.Check(etag <= Journal.Last.Etag, $"A snapshot at {etag} is installed, but the journal ends at {Journal.Last.Name}.");
        Committed = Etag.Max(Committed, etag);
        OwnDigest.Forget();
        TreeDoubted = false;
    }

    /// <summary>Updates the progress in the control file, which is written when due.</summary>
    public void NoteProgress(Etag acknowledged)
    {
        Invariant.Check(acknowledged <= Journal.Durable.Etag, $"The acknowledged etag is {acknowledged}, but only {Journal.Durable.Name} is durable.");
        var wanted = Control.Wanted;
        // Never above this replica's durable etag, because recovery would refuse to open such a replica.
        var committed = Etag.Max(wanted.Committed, Etag.Min(Committed, Journal.Durable.Etag));
        acknowledged = Etag.Max(wanted.Acknowledged, acknowledged);
        var generation = Math.Max(wanted.Generation, View.Record.Generation);
        var seen = RecordVersion.Max(RecordVersion.Of(wanted), View.Version);
        // Called after every event; most calls change nothing here.
        if (committed == wanted.Committed && acknowledged == wanted.Acknowledged && generation == wanted.Generation && seen == RecordVersion.Of(wanted))
            return;
        Control.Note(wanted with { Committed = committed,
            Acknowledged = acknowledged, Generation = generation, CoordinatorRevision = seen.Revision, Recovery = seen.Recovery });
    }

    /// <summary>
    /// The coordinator returned something older than this replica had seen. No elections or changes of replicas until a later read is consistent.
    /// </summary>
    public bool CoordinatorDoubted { get; private set; }

    /// <summary>Ids of reads and compare-and-sets increase, so that late answers are recognized.</summary>
    public long NextRequestId() => ++_requestIdLast;

    /// <summary>Asks for the record. A linearizable read sent from here on must not return less than what was seen by now.</summary>
    public void ReadRecord(long readId)
    {
        var (held, known) = (Control.Synced, View.Record);
        _heldAtRead[readId] = new Seen(
            RecordVersion.Max(RecordVersion.Of(held), View.Version), Math.Max(held.Generation, known.Generation), Math.Max(held.PromisedEpoch, known.Epoch));
        Emit(new Effect.ReadRecord(readId));
    }

    /// <summary>Checks the answer to a read. False: nothing may be concluded from it.</summary>
    public bool TryTrust(long readId, ShardRecord? record, long revision)
    {
        if (!_heldAtRead.Remove(readId, out var held) || record is null)
            return record is not null;
        var version = RecordVersion.Of(record, revision);
        var doubted = version < held.Version || record.Generation < held.Generation || record.Epoch < held.Epoch;
        if (doubted && !CoordinatorDoubted)
        {
            Emit(new Effect.Alarm(
                $"the coordinator went backwards: revision {version}, generation {record.Generation}, epoch {record.Epoch}; "
                + $"seen before: {held.Version}, {held.Generation}, {held.Epoch}. No elections take place until it is repaired"));
        }

        CoordinatorDoubted = doubted;
        return !doubted;
    }

    private void Apply(Etag etag)
    {
        Invariant.Check(etag > Committed, $"The committed etag goes from {Committed} to {etag}.");
        Committed = etag;
        Emit(new Effect.Commit(etag));
    }

    /// <summary>Remembers the newest process incarnation of a replica.</summary>
    public void Heard(ReplicaId replica, ulong incarnation) => _incarnations[replica] = Math.Max(incarnation, _incarnations.GetValueOrDefault(replica));

    /// <summary>A frame to another replica. The caller sets its payload.</summary>
    public Frame FrameTo(ReplicaId receiver, ulong epoch) => new()
    {
        ShardId = Shard,
        Generation = View.Record.Generation,
        Epoch = epoch,
        SenderId = Self,
        SenderIncarnation = Incarnation,
        ReceiverId = receiver,
        ReceiverIncarnation = _incarnations.GetValueOrDefault(receiver),
    };

    /// <summary>Sends to a replica of the record. Frames to other replicas are dropped, because their node is not known.</summary>
    public void Send(Frame frame)
    {
        var node = View.NodeOf(frame.ReceiverId);
        if (!node.IsNone)
            Emit(new Effect.Send(node, frame));
    }

    /// <summary>What was known of the coordinator's record when a read of it was sent.</summary>
    private readonly record struct Seen(RecordVersion Version, ulong Generation, ulong Epoch);
}
