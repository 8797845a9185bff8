using Google.Protobuf;
using KvCluster.Internal.V1;
using KvCluster.Replication;
using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;
using Event = KvCluster.Replication.Protocol.Event;

namespace KvCluster.Tests.Replication;

/// <summary>One core of a <see cref="ClusterTranscript"/> with its journal. It executes the core's effects at once and writes them into the trace.</summary>
internal sealed class TranscriptMember
{
    private const int SnapshotBytes = 10;
    private readonly ClusterTranscript _cluster;
    private readonly ulong _id;
    private readonly ListJournal _journal = new();
    private readonly Queue<Event> _events = [];
    private Effect.TakeDigest? _taking;

    public TranscriptMember(ClusterTranscript cluster, ulong id, ShardRecord record, long revision)
    {
        _cluster = cluster;
        _id = id;
        var control = new HardState { ReplicaId = new(id) };
        Core = new ReplicaCore(new ReplicaStartup(new(0), id * 10, control, Etag.None, record, revision, id, cluster.NowUs), _journal, cluster.Options);
    }

    public ReplicaCore Core { get; }

    /// <summary>The content of its tree, in addition to its journal.</summary>
    public string Tree { get; set; } = "";

    /// <summary>Whether digests take time, until <see cref="EndDigest"/>.</summary>
    public bool HoldsDigests { get; set; }

    public string State => string.Join(", ", Core.Followers.Select(follower => $"{follower.Replica.Value} in {follower.State}")
        .Prepend($"{_id}: {Core.Role} of epoch {Core.Epoch}, last {_journal.Last.Name}, committed {Short(Core.Committed)}"));

    /// <summary>Appends a batch of the leader's store.</summary>
    public void Append() => Step(new Event.RecordAppended(AppendOwn(_journal.Last.Etag.Change + 1)));

    public void EndDigest()
    {
        HoldsDigests = false;
        if (_taking is { } take)
            Step(new Event.DigestTaken(take.TakeId, DigestAt(take.Etag)));
        _taking = null;
    }

    public void Trim()
    {
        Assert.True(_journal.TryFind(Core.Committed, out var covers));
        _journal.Trim(covers);
    }

    /// <summary>Executes one event and everything that follows from it here.</summary>
    public void Step(Event happened)
    {
        _events.Enqueue(happened);
        while (_events.TryDequeue(out var next))
        {
            Core.Step(next, _cluster.NowUs);
            foreach (var effect in Core.Effects.ToArray())
                Take(effect);
        }
    }

    private void Take(Effect effect)
    {
        switch (effect)
        {
            case Effect.Send send:
                Send(send.Frame);
                break;
            case Effect.SendBodies send:
                SendBodies(send);
                break;
            case Effect.WriteControl write:
                _events.Enqueue(new Event.ControlWritten(write.Control));
                break;
            case Effect.AppendBodies append:
                foreach (var body in append.Bodies)
                    _journal.Append(body.Record.Etag.Epoch, body.Record.Etag.Change);
                Show($"appends up to {_journal.Last.Name}");
                _journal.Sync();
                _events.Enqueue(Event.Durable.Instance);
                break;
            case Effect.Truncate truncate:
                Show($"cuts to {truncate.LastKept}");
                _journal.Truncate(truncate.LastKept.Etag);
                _events.Enqueue(Event.Truncated.Instance);
                break;
            case Effect.Commit commit:
                Show($"commits {Short(commit.Committed)}");
                break;
            case Effect.ReadRecord read:
                _events.Enqueue(_cluster.Read(read.ReadId));
                break;
            case Effect.CompareAndSet set:
                var done = _cluster.Set(set);
                Show($"sets epoch {set.Record.Epoch} leader {set.Record.Leader} generation {set.Record.Generation}: {done.Outcome}");
                _events.Enqueue(done);
                break;
            case Effect.StartLeading start:
                Show($"starts leading {start.Epoch}");
                _events.Enqueue(new Event.RecordAppended(AppendOwn(_journal.Last.Etag.Change + 1, start.Epoch)));
                break;
            case Effect.Serving serving:
                Show(serving.On ? "serves" : "stops serving");
                break;
            case Effect.StopLeading stop:
                Show($"stops leading: {stop.Reason}");
                break;
            case Effect.ReadsConfirmed reads:
                Show($"confirms reads up to {reads.ReadIdLast}");
                break;
            case Effect.ReadsRefused reads:
                Show($"refuses reads up to {reads.ReadIdLast}");
                break;
            case Effect.ReadIndexKnown known:
                Show($"answers follower reads up to {known.ReadIdLast} once {Short(known.Committed)} is applied");
                break;
            case Effect.ReadIndexRefused refused:
                Show($"refuses follower reads up to {refused.ReadIdLast}");
                break;
            case Effect.OrderEnded ended:
                Show($"order {ended.OrderId} {(ended.Done ? "done" : "not done")}: {ended.Reason}");
                break;
            case Effect.OpenSnapshot open:
                Assert.True(_journal.TryFind(Core.Committed, out var covers));
                Show($"opens a snapshot at {covers.Name} for {open.Replica.Value}");
                _events.Enqueue(new Event.SnapshotOpened(open.Replica, covers.Name, SnapshotBytes));
                break;
            case Effect.SendSnapshotChunk send:
                send.Frame.SnapshotChunk.Data = ByteString.CopyFrom(new byte[send.Bytes]);
                Send(send.Frame);
                break;
            case Effect.StoreSnapshotChunk store:
                _events.Enqueue(new Event.SnapshotStored(store.Chunk.Covers.FromWire(), (long)store.Chunk.Offset + store.Chunk.Data.Length));
                break;
            case Effect.VerifySnapshot verify:
                _events.Enqueue(new Event.SnapshotVerified(verify.Covers, SnapshotBytes, IsWhole: true));
                break;
            case Effect.InstallSnapshot install:
                Show($"installs the snapshot at {install.Covers}");
                _journal.Replace(install.Covers);
                _events.Enqueue(new Event.SnapshotInstalled(install.Covers));
                break;
            case Effect.TakeDigest take:
                Show($"takes the digest at {Short(take.Etag)}");
                _taking = take;
                if (!HoldsDigests)
                    _events.Enqueue(new Event.DigestTaken(take.TakeId, DigestAt(take.Etag)));
                break;
            case Effect.DropDigest:
                Show("drops the digest");
                _taking = null;
                break;
            case Effect.Quarantine quarantine:
                Show($"is quarantined: {quarantine.Reason}");
                break;
            case Effect.Alarm alarm:
                Show($"alarm: {alarm.Text}");
                break;
            case Effect.Halt halt:
                Show($"halts: {halt.Reason}");
                break;
        }
    }

    private ByteString DigestAt(Etag etag) => ByteString.CopyFromUtf8($"{Short(etag)}{Tree}");

    private RecordRef AppendOwn(ulong change, ulong epoch = 0)
    {
        var record = _journal.Append(epoch == 0 ? Core.Epoch : epoch, change);
        _journal.Sync();
        _events.Enqueue(Event.Durable.Instance);
        Show($"appends {record.Name}");
        return record;
    }

    private void SendBodies(Effect.SendBodies send)
    {
        var append = send.Frame.PayloadCase == Frame.PayloadOneofCase.Append;
        var bodies = append ? send.Frame.Append.Bodies : send.Frame.Tail.Bodies;
        var last = send.After;
        // The preceding record must be here; otherwise the journal no longer reaches back that far.
        if (_journal.TryFind(send.After.Etag, out _))
        {
            foreach (var record in _journal.Behind(send.After.Etag))
            {
                bodies.Add(ByteString.CopyFrom(ListJournal.Body(record)));
                last = record.Name;
            }
        }

        if (append)
            _events.Enqueue(new Event.BodiesSent(send.Frame.ReceiverId, send.Frame.Epoch, last, bodies.Count));
        if (bodies.Count > 0 || !append)
            Send(send.Frame);
    }

    private void Send(Frame frame)
    {
        if (frame.Heartbeat is { RestUs: > 0 })
            Show($"to {frame.Receiver}: quiescent");
        else if (frame.PayloadCase is not (Frame.PayloadOneofCase.Heartbeat or Frame.PayloadOneofCase.HeartbeatAck or Frame.PayloadOneofCase.Ack))
            Show($"to {frame.Receiver}: {Text(frame)}");
        _cluster.Send(frame);
    }

    private void Show(string text) => _cluster.Show($"{_id} {text}");

    private static string Text(Frame frame) => frame.PayloadCase switch
    {
        Frame.PayloadOneofCase.Append => $"append {frame.Append.Bodies.Count} behind {Short(frame.Append.Previous.Etag.FromWire())}",
        Frame.PayloadOneofCase.Probe => $"probe {Short(frame.Probe.Record.Etag.FromWire())}",
        Frame.PayloadOneofCase.Match => $"{(frame.Match.Found ? "has" : "lacks it, has")} {Short(frame.Match.Record.Etag.FromWire())}",
        Frame.PayloadOneofCase.PreVoteAnswer => $"pre-vote {(frame.PreVoteAnswer.Granted ? "granted" : "refused")}",
        Frame.PayloadOneofCase.Prepare => $"prepare {frame.Epoch}",
        Frame.PayloadOneofCase.Prepared => $"prepared {Short(frame.Prepared.Last.Etag.FromWire())}",
        Frame.PayloadOneofCase.Fenced => $"fenced by {frame.Epoch}",
        Frame.PayloadOneofCase.DigestAsk => $"asks for digest {frame.DigestAsk.Number} at {Short(frame.DigestAsk.Etag.FromWire())}",
        Frame.PayloadOneofCase.DigestReport => $"{(frame.DigestReport.Digest.IsEmpty ? "no digest" : "digest")} {frame.DigestReport.Number}",
        Frame.PayloadOneofCase.DigestDiffers => $"digest {frame.DigestDiffers.Number} differs",
        _ => frame.PayloadCase.ToString().ToLowerInvariant(),
    };

    private static string Short(Etag etag) => $"{etag.Epoch}.{etag.Change}";
}
