using Google.Protobuf;
using KvCluster.Internal.V1;
using KvCluster.Replication;
using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;
using Event = KvCluster.Replication.Protocol.Event;

namespace KvCluster.Tests.Replication;

/// <summary>
/// Drives one core by hand and records its effects, one per line, so that a test reads as a conversation. The replica under test is 1; 2 and 3 are
/// its peers, each on the node with the same number. Journal and control file do nothing by themselves.
/// </summary>
internal sealed class Transcript
{
    private readonly List<string> _lines = [];
    private readonly ReplicaCore _core;
    private long _nowUs = 1_000_000;

    public Transcript(Action<ListJournal>? journal = null, HardState? control = null, ulong epoch = 0, ulong leader = 0)
    {
        Record = new ShardRecord { Generation = 1, Epoch = epoch, Leader = leader, LeaderIncarnation = leader * 10 };
        for (var id = 1u; id <= 3; id++)
            Record.Replicas.Add(new ReplicaRecord { Replica = id, Node = id, Created = true });
        journal?.Invoke(Journal);
        Journal.Sync();
        var startup = new ReplicaStartup(new(0), 10, control ?? new HardState { ReplicaId = new(1) }, control?.Committed ?? Etag.None, Record, 5, 1, _nowUs);
        _core = new ReplicaCore(startup, Journal, new ReplicationOptions());
    }

    public ListJournal Journal { get; } = new();

    public ShardRecord Record { get; }

    public HardState? Control { get; private set; }

    public long RequestId { get; private set; }

    public long TakeId { get; private set; }

    public ReplicaCore Core => _core;

    public Transcript Step(Event happened)
    {
        _core.Step(happened, _nowUs);
        foreach (var effect in _core.Effects.ToArray())
            Take(effect);
        return this;
    }

    public Transcript Tick(long laterUs = 0)
    {
        _nowUs += laterUs;
        return Step(Event.Tick.Instance);
    }

    public Transcript Synced() => Step(new Event.ControlWritten(Control!));

    public Transcript Read() => Step(new Event.ShardRecordRead(RequestId, Record, 5));

    public Transcript Set(SetOutcome outcome) => Step(new Event.CompareAndSetDone(RequestId, outcome, 6));

    public Transcript Durable()
    {
        Journal.Sync();
        return Step(Event.Durable.Instance);
    }

    /// <summary>A frame from a peer whose incarnation is ten times its id.</summary>
    public Transcript From(ulong sender, ulong epoch, Action<Frame> payload)
    {
        var frame = new Frame { Generation = 1, Epoch = epoch, Sender = sender, SenderIncarnation = sender * 10, Receiver = 1, ReceiverIncarnation = 10 };
        payload(frame);
        return Step(new Event.FrameReceived(frame));
    }

    public static RecordId Id(ulong epoch, ulong change) => new() { Etag = new V1.Etag { Epoch = epoch, Change = change }, Checksum = (uint)epoch };

    public static Append Append((ulong Epoch, ulong Change) previous, params (ulong Epoch, ulong Change)[] records)
    {
        var append = new Append { Previous = Id(previous.Epoch, previous.Change) };
        foreach (var (epoch, change) in records)
        {
            append.Bodies.Add(ByteString.CopyFrom((byte)epoch, (byte)change, (byte)previous.Epoch, (byte)previous.Change));
            previous = (epoch, change);
        }

        return append;
    }

    /// <summary>Compares the effects since the last call.</summary>
    public void Shows(string expected) => Assert.Equal(expected.ReplaceLineEndings("\n"), Shown());

    /// <summary>Returns the effects since the last call.</summary>
    public string Shown()
    {
        var shown = string.Join('\n', _lines);
        _lines.Clear();
        return shown;
    }

    private void Take(Effect effect)
    {
        switch (effect)
        {
            case Effect.Send send:
                _lines.Add($"to {send.Node}: epoch {send.Frame.Epoch} {Text(send.Frame)}");
                break;
            case Effect.SendBodies send:
                _lines.Add($"to {send.Node}: epoch {send.Frame.Epoch} bodies after {send.After}");
                break;
            case Effect.WriteControl write:
                Control = write.Control;
                _lines.Add($"control: promised {Control.PromisedEpoch} to {Control.PromisedLeader.Value}, acknowledged {Short(Control.Acknowledged)}, lease "
                    + $"{Control.LeaseLongestUs}");
                break;
            case Effect.AppendBodies append:
                foreach (var body in append.Bodies)
                    Journal.Append(body.Record.Etag.Epoch, body.Record.Etag.Change);
                _lines.Add($"append up to {Journal.Last.Name}");
                break;
            case Effect.Truncate truncate:
                Journal.Truncate(truncate.LastKept.Etag);
                _lines.Add($"cut to {truncate.LastKept}");
                break;
            case Effect.Commit commit:
                _lines.Add($"commit {Short(commit.Committed)}");
                break;
            case Effect.ReadRecord read:
                RequestId = read.ReadId;
                _lines.Add("read the record");
                break;
            case Effect.CompareAndSet set:
                RequestId = set.SetId;
                _lines.Add($"set epoch {set.Record.Epoch} leader {set.Record.Leader} if revision {set.Revision}");
                break;
            case Effect.StartLeading start:
                _lines.Add($"start leading {start.Epoch}");
                break;
            case Effect.Serving serving:
                _lines.Add(serving.On ? "serve" : "stop serving");
                break;
            case Effect.StopLeading:
                _lines.Add("stop leading");
                break;
            case Effect.ReadsConfirmed reads:
                _lines.Add($"reads up to {reads.ReadIdLast} confirmed");
                break;
            case Effect.ReadsRefused reads:
                _lines.Add($"reads up to {reads.ReadIdLast} refused");
                break;
            case Effect.ReadIndexKnown known:
                _lines.Add($"follower reads up to {known.ReadIdLast} once {Short(known.Committed)} is applied");
                break;
            case Effect.ReadIndexRefused refused:
                _lines.Add($"follower reads up to {refused.ReadIdLast} refused");
                break;
            case Effect.OrderEnded ended:
                _lines.Add($"transfer {ended.OrderId} {(ended.Done ? "done" : "not done")}");
                break;
            case Effect.TakeDigest take:
                TakeId = take.TakeId;
                _lines.Add($"take the digest at {Short(take.Etag)}");
                break;
            case Effect.DropDigest:
                _lines.Add("drop the digest");
                break;
            case Effect.OpenSnapshot open:
                _lines.Add($"open a snapshot for {open.Replica.Value}");
                break;
            case Effect.SendSnapshotChunk send:
                _lines.Add($"to {send.Node}: epoch {send.Frame.Epoch} {send.Bytes} bytes from {send.Frame.SnapshotChunk.Offset} on");
                break;
            case Effect.CloseSnapshot close:
                _lines.Add($"close the snapshot for {close.Replica.Value}");
                break;
            case Effect.CheckPages:
                _lines.Add("check the own pages");
                break;
            case Effect.StoreSnapshotChunk store:
                _lines.Add($"store from {store.Chunk.Offset} on");
                break;
            case Effect.VerifySnapshot verify:
                _lines.Add($"verify the snapshot at {Short(verify.Covers.Etag)}");
                break;
            case Effect.DropSnapshot:
                _lines.Add("drop the snapshot");
                break;
            case Effect.InstallSnapshot install:
                Journal.Replace(install.Covers);
                _lines.Add($"install the snapshot at {Short(install.Covers.Etag)}");
                break;
            case Effect.Quarantine quarantine:
                _lines.Add($"quarantine: {quarantine.Reason}");
                break;
            case Effect.Alarm:
                _lines.Add("alarm");
                break;
            case Effect.Halt:
                _lines.Add("halt");
                break;
        }
    }

    private static string Text(Frame frame) => frame.PayloadCase switch
    {
        Frame.PayloadOneofCase.Ack => $"ack {Short(frame.Ack.Durable)}{(frame.Ack.Recovering ? " recovering" : "")}",
        Frame.PayloadOneofCase.Heartbeat => $"heartbeat {frame.Heartbeat.Round} committed {Short(frame.Heartbeat.Committed)}",
        Frame.PayloadOneofCase.HeartbeatAck => $"heartbeat ack {frame.HeartbeatAck.Round}{(frame.HeartbeatAck.Granted ? " granted" : "")}",
        Frame.PayloadOneofCase.Probe =>
            $"probe {Short(frame.Probe.Record.Etag)}{(frame.Probe.Remembered.Change == 0 ? "" : $", remembers {Short(frame.Probe.Remembered)}")}",
        Frame.PayloadOneofCase.Match => $"{(frame.Match.Found ? "has" : "lacks it, has")} {Short(frame.Match.Record.Etag)}",
        Frame.PayloadOneofCase.PreVoteAnswer => $"pre-vote {(frame.PreVoteAnswer.Granted ? "granted" : "refused")}",
        Frame.PayloadOneofCase.Prepared => $"prepared {Short(frame.Prepared.Last.Etag)}",
        Frame.PayloadOneofCase.ReadIndex => $"read index {frame.ReadIndex.Number}?",
        Frame.PayloadOneofCase.ReadIndexAnswer => $"read index {frame.ReadIndexAnswer.Number} is {Short(frame.ReadIndexAnswer.Committed)}",
        Frame.PayloadOneofCase.Release => $"release round {frame.Release.Round}{(frame.Release.Stand ? ", stand" : "")}",
        Frame.PayloadOneofCase.FetchTail => $"fetch after {Short(frame.FetchTail.After.Etag)}",
        Frame.PayloadOneofCase.SnapshotAck => $"snapshot {Short(frame.SnapshotAck.Covers.Etag)}: {(frame.SnapshotAck.Installed ? "installed"
            : frame.SnapshotAck.Fault != SnapshotFault.Unspecified ? frame.SnapshotAck.Fault
            : $"{frame.SnapshotAck.BytesStored} stored, {frame.SnapshotAck.BytesVerified} verified")}",
        Frame.PayloadOneofCase.SnapshotChunk => $"asks for the snapshot at {Short(frame.SnapshotChunk.Covers.Etag)}",
        Frame.PayloadOneofCase.DigestReport =>
            $"digest {frame.DigestReport.Number} is {(frame.DigestReport.Digest.IsEmpty ? "none" : frame.DigestReport.Digest.ToStringUtf8())}",
        _ => frame.PayloadCase.ToString().ToLowerInvariant(),
    };

    private static string Short(V1.Etag etag) => $"{etag.Epoch}.{etag.Change}";

    private static string Short(Etag etag) => $"{etag.Epoch}.{etag.Change}";
}
