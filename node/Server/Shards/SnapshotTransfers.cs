using Google.Protobuf;
using KvCluster.Replication;
using KvCluster.Storage;
using KvCluster.Storage.Snapshots;
using KvCluster.Storage.Threads;
using KvCluster.V1;

namespace KvCluster.Node.Shards;

/// <summary>
/// The snapshots that a replica sends to followers and the one that it receives. On the shard's writer executor, but for the long part of an
/// installation, which runs on the checkpoint executor, and so does the switch, when the old store writes no more; the old state is read meanwhile.
/// </summary>
/// <param name="context">Disk and executors.</param>
/// <param name="visit">Runs something on the writer executor between two events, unless the replica has ended. Any thread.</param>
/// <param name="tryStop">
/// Stops the store in use, on the writer executor, and calls back there when it changes its directory no more; false: not yet, ask again after what is
/// under way.
/// </param>
/// <param name="use">Takes the received state's store into use, on the writer executor, also when the replica has ended; null: there is none.</param>
/// <param name="fail">The replica cannot go on. Writer executor.</param>
internal sealed class SnapshotTransfers(
    StoreContext context, Action<Action> visit, Func<Action, bool> tryStop, Action<ReplicaStore?> use, Action<Exception> fail)
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
                visit(() => Stop(installer, control, installed));
            }
            catch (Exception failure)
            {
                visit(() => fail(failure));
            }
        }));
    }

    // Tried again until what the old store still has on its way has come back.
    private void Stop(SnapshotInstaller installer, ControlState control, Action installed)
    {
        if (!tryStop(() => context.Checkpoints.Post(new WorkAction(() => SwitchIn(installer, control, installed)))))
            context.JournalLanes[0].Post(new WorkAction(() => visit(() => Stop(installer, control, installed))));
    }

    // Not on the writer, which other shards share: renames are synced, and recovery reads files.
    private void SwitchIn(SnapshotInstaller installer, ControlState control, Action installed)
    {
        try
        {
            installer.SwitchIn(control);
            installer.Dispose();
            var store = ReplicaStore.Open(context, installer.Directory, mayRefill: true, control.Identity);
            context.Writer.Post(new WorkAction(() =>
            {
                use(store);
                installed();
            }));
        }
        catch (Exception failure)
        {
            context.Writer.Post(new WorkAction(() =>
            {
                use(null);
                fail(failure);
            }));
        }
    }
}
