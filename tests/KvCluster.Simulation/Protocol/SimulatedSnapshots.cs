using Google.Protobuf;
using KvCluster.Internal.V1;
using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;

namespace KvCluster.Simulation.Protocol;

/// <summary>The snapshots that a process sends to others, and the one that it receives: stored, verified, and installed in place of its state.</summary>
internal sealed class SimulatedSnapshots(SimulationRun run, SimulatedReplica replica, SimulatedProcess process)
{
    private readonly Dictionary<ReplicaId, (LogPosition Covers, byte[] Bytes)> _sources = [];
    private byte[] _incoming = [];

    /// <summary>The number of snapshots open for others.</summary>
    public int Sources => _sources.Count;

    public void Open(ReplicaId receiver)
    {
        var covers = process.Journal.TryFind(process.Published, out var published) ? published.Name : process.Journal.Base;
        var bytes = process.Tree.ToBytes();
        _sources[receiver] = (covers, bytes);
        run.Trace($"node {replica.Node} opens a snapshot at {covers} for replica {receiver}");
        process.After(process.DrawSyncUs(), () => process.Step(new Event.SnapshotOpened(receiver, covers, bytes.Length)));
    }

    public void SendChunk(Effect.SendSnapshotChunk send)
    {
        var chunk = send.Frame.SnapshotChunk;
        if (!_sources.TryGetValue(send.Frame.ReceiverId, out var source) || source.Covers != chunk.Covers.FromWire())
            return;
        chunk.Data = ByteString.CopyFrom(source.Bytes.AsSpan((int)chunk.Offset, send.Bytes));
        process.After(run.Random.NextInt64(100), () => run.Network.Send(replica.Node, (int)send.Node.Value, send.Frame));
    }

    public void Close(ReplicaId receiver) => _sources.Remove(receiver);

    public void StoreChunk(SnapshotChunk chunk)
    {
        var offset = (int)chunk.Offset;
        Violation.Unless(offset == 0 || offset == _incoming.Length, Rule.Contract, "a snapshot is stored with a gap");
        _incoming = offset == 0 ? chunk.Data.ToByteArray() : [.. _incoming, .. chunk.Data.Span];
        var covers = new LogPosition(new Etag(chunk.Covers.Etag.Epoch, chunk.Covers.Etag.Change), chunk.Covers.Checksum);
        var stored = _incoming.Length;
        process.After(run.Random.NextInt64(500), () => process.Step(new Event.SnapshotStored(covers, stored)));
    }

    /// <summary>Takes the time of some syncs, and sometimes many times that. Promises, grants and appends continue meanwhile.</summary>
    public void Verify(LogPosition covers)
    {
        var incoming = _incoming;
        var us = process.DrawSyncUs() * (run.Chance(200) ? 100 : 2);
        run.Reached(replica, Moment.Verifying);
        us = replica.VerifiesForUs > 0 ? replica.VerifiesForUs : us;
        void Tell(Event happened)
        {
            if (_incoming == incoming)
                process.Step(happened);
        }

        process.After(us / 2, () => Tell(new Event.SnapshotVerified(covers, 1, IsWhole: false)));
        process.After(us, () => Tell(!run.Chance(100)
            ? new Event.SnapshotVerified(covers, incoming.Length, IsWhole: true)
            : new Event.SnapshotFailed(covers, (SnapshotFault)run.Random.Next(1, 4), "it happens")));
    }

    public void Drop() => _incoming = [];

    public void Install(Effect.InstallSnapshot install)
    {
        process.After(process.DrawSyncUs() * 2, () =>
        {
            Violation.Unless(
                install.Covers.Etag > process.Published, Rule.Contract, $"node {replica.Node} is to install {install.Covers} over {process.Published}");
            var tree = SimulatedTree.FromBytes(_incoming);
            replica.Disk.Checkpoint = tree.Copy();
            replica.Disk.Control = install.Control;
            process.Journal.Replace(install.Covers);
            process.Replace(tree, install.Covers.Etag);
            run.SnapshotsInstalled++;
            run.Trace($"node {replica.Node} has installed a snapshot at {install.Covers}");
            process.Step(new Event.SnapshotInstalled(install.Covers));
        });
        run.Reached(replica, Moment.Installing);
    }
}
