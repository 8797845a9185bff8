using Google.Protobuf;
using KvCluster.Replication;
using KvCluster.Storage;
using KvCluster.Storage.Snapshots;
using KvCluster.Storage.Threads;
using KvCluster.V1;

namespace KvCluster.Node.Shards;

/// <summary>
/// The snapshots that a replica sends to followers and the one that it receives. On the shard's writer executor, but for the long part of an
/// installation, which runs on the checkpoint executor while the old state goes on answering.
/// </summary>
/// <param name="context">Disk and executors.</param>
/// <param name="visit">Runs something on the writer executor between two events. Any thread.</param>
/// <param name="switchIn">Takes the received state into use, on the writer executor; false: not yet, ask again after what is under way.</param>
/// <param name="fail">The replica cannot go on.</param>
internal sealed class SnapshotTransfers(StoreContext context, Action<Action> visit, Func<SnapshotInstaller, ControlState, bool> switchIn, Action<Exception> fail)
{
    private readonly Dictionary<ulong, SnapshotSource> _sources = [];
    private SnapshotInstaller? _incoming;
    private RecordName _incomingCovers;

    /// <summary>Begins to send a pinned checkpoint to a follower, in place of an earlier one.</summary>
    public void Send(ulong replica, SnapshotSource source)
    {
        Close(replica);
        _sources[replica] = source;
    }

    /// <summary>Bytes of what is being sent to a follower; fewer only at the end.</summary>
    public ByteString Read(ulong replica, long offset, int bytes)
    {
        var source = _sources[replica];
        var chunk = new byte[Math.Min(bytes, source.BytesTotal - offset)];
        var read = source.Read(chunk, offset);
        return UnsafeByteOperations.UnsafeWrap(chunk.AsMemory(0, read));
    }

    /// <summary>The follower is served or gone: unpins.</summary>
    public void Close(ulong replica)
    {
        if (_sources.Remove(replica, out var source))
            source.Dispose();
    }

    /// <summary>Unpins all, and lets go of what was being received; it is removed when the replica is opened again.</summary>
    public void CloseAll()
    {
        foreach (var source in _sources.Values)
            source.Dispose();
        _sources.Clear();
        _incoming?.Dispose();
        _incoming = null;
    }

    /// <summary>Stores a chunk that continues what is stored; an offset of 0, or another snapshot, starts over. Gives what is stored without a gap.</summary>
    public long Receive(SnapshotChunk chunk, string directory, out RecordName covers)
    {
        covers = new RecordName(new Etag(chunk.Covers.Etag.Epoch, chunk.Covers.Etag.Change), chunk.Covers.Checksum);
        if (_incoming is null || chunk.Offset == 0 || covers != _incomingCovers)
        {
            _incoming?.Dispose();
            _incoming = new SnapshotInstaller(context, directory);
            _incomingCovers = covers;
        }
        if ((long)chunk.Offset == _incoming.BytesStored)
            _incoming.Store(chunk.Data.Span);
        return _incoming.BytesStored;
    }

    /// <summary>Checks and syncs what was received, switches it in, then calls <paramref name="installed"/> on the writer executor.</summary>
    public void Complete(ControlState control, Action installed)
    {
        var installer = _incoming ?? throw new ReplicaHaltedException("A snapshot is to be installed that was not received.");
        _incoming = null;
        context.Checkpoints.Post(new WorkAction(() =>
        {
            try
            {
                installer.Complete(control);
                visit(() => SwitchIn(installer, control, installed));
            }
            catch (Exception failure)
            {
                visit(() => fail(failure));
            }
        }));
    }

    // What the old store still has on its way goes through the journal executor before the next try.
    private void SwitchIn(SnapshotInstaller installer, ControlState control, Action installed)
    {
        if (switchIn(installer, control))
            installed();
        else
            context.Journal.Post(new WorkAction(() => visit(() => SwitchIn(installer, control, installed))));
    }
}
