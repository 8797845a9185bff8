using Google.Protobuf;
using KvCluster.Internal.V1;
using KvCluster.Node.Shards.Context;
using KvCluster.Replication.Log;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.Files;
using KvCluster.Storage.Snapshots;
using KvCluster.Storage.Threads;
using Event = KvCluster.Replication.Protocol.Event;

namespace KvCluster.Node.Shards.Snapshots;

/// <summary>
/// Snapshots in transfer: checkpoints pinned for followers, and the one that this replica receives. Called on the shard's writer executor, which other shards
/// share. Everything that touches the disk runs on the checkpoint executor in pieces of some megabytes, and its results are reported as events. The protocol's
/// side: <c>JournalShipping</c> at the sender, <c>SnapshotReception</c> at the receiver.
/// </summary>
/// <param name="context">The store's executors, disk and bounds.</param>
/// <param name="later">Queues an event for the core. Any thread.</param>
/// <param name="visit">Runs an action on the writer executor between two events, unless the replica has ended. Any thread.</param>
/// <param name="tryStop">
/// Stops the store in use, on the writer executor, and calls back there when it no longer changes its directory. False if it cannot stop yet; try again
/// after the write in progress.
/// </param>
/// <param name="lacksRoom">The received state cannot be opened until the disk has space, which may take any time. Writer executor.</param>
/// <param name="use">Takes the received state's store into use, on the writer executor, even if the replica has ended; null if there is none.</param>
/// <param name="fail">The replica cannot continue. Writer executor.</param>
internal sealed class SnapshotTransfers(
    StoreContext context, Action<Event> later, Action<Action> visit, Func<Action, bool> tryStop,
    Action<Exception> lacksRoom, Action<ReplicaStore?> use, Action<Exception> fail)
{
    /// <summary>Bytes verified at a time. Small enough not to delay checkpoints of other shards on the same executor.</summary>
    private const long VerifyStepBytes = 4 << 20;

    /// <summary>Interval at which opening the switched-in state is retried while the disk is full.</summary>
    private static readonly TimeSpan RoomInterval = TimeSpan.FromSeconds(1);

    private readonly Dictionary<ReplicaId, SnapshotSource> _sources = [];
    private volatile bool _hasEnded;

    // The next fields are used on the checkpoint executor only.
    private SnapshotInstaller? _incoming;
    private LogPosition _incomingCovers;
    private ITimer? _retry;

    /// <summary>Told why a snapshot that is received found no space, and null when it has its space. Checkpoint executor.</summary>
    public Action<string?> RoomKnown { private get; init; } = static _ => { };

    /// <summary>Begins to send a pinned checkpoint to a follower, in place of an earlier one. Returns its log position.</summary>
    public LogPosition Send(ReplicaId replica, SnapshotSource source)
    {
        Close(replica);
        _sources[replica] = source;
        var covers = NameOf(source);
        source.TakenBack = reason => later(new Event.SnapshotLost(replica, covers, reason));
        return covers;
    }

    /// <summary>
    /// Reads a frame's data and sends it asynchronously. Sends nothing if the checkpoint is not the one that the frame names, or is unpinned meanwhile.
    /// </summary>
    public void SendChunk(Frame frame, int bytes, Action<Frame> send)
    {
        if (!_sources.TryGetValue(frame.ReceiverId, out var source) || NameOf(source) != NameOf(frame.SnapshotChunk))
            return;
        context.Checkpoints.Post(new WorkAction(() =>
        {
            try
            {
                var offset = (long)frame.SnapshotChunk.Offset;
                var chunk = new byte[Math.Min(bytes, source.BytesTotal - offset)];
                var read = source.Read(chunk, offset);
                if (read <= 0 || _hasEnded)
                    return;
                frame.SnapshotChunk.Data = UnsafeByteOperations.UnsafeWrap(chunk.AsMemory(0, read));
                send(frame);
            }
            catch (Exception failure)
            {
                // The damage is in this replica, so this replica fails.
                visit(() => fail(failure));
            }
        }));
    }

    /// <summary>The follower has the snapshot or is gone. Unpins the checkpoint.</summary>
    public void Close(ReplicaId replica)
    {
        if (_sources.Remove(replica, out var source))
            source.Dispose();
    }

    /// <summary>Unpins everything and abandons what was being received. Its files are removed when the replica is opened again.</summary>
    public void CloseAll()
    {
        _hasEnded = true;
        foreach (var source in _sources.Values)
            source.Dispose();
        _sources.Clear();
        context.Checkpoints.Post(new WorkAction(() =>
        {
            _incoming?.Dispose();
            _incoming = null;
        }));
    }

    /// <summary>Stores a chunk that continues what is stored; an offset of 0 starts over.</summary>
    public void Store(SnapshotChunk chunk, string directory)
    {
        var covers = NameOf(chunk);
        OnDisk(covers, () =>
        {
            if (chunk.Offset == 0)
            {
                _incoming?.Dispose();
                _incoming = null;
                _incoming = new SnapshotInstaller(context, directory, covers.Etag, covers.Checksum, (long)chunk.BytesTotal);
                _incomingCovers = covers;
            }
            // A chunk of a snapshot that has failed may still arrive. It is dropped.
            if (_incoming is null || covers != _incomingCovers || (long)chunk.Offset != _incoming.BytesStored)
                return;
            _incoming.Store(chunk.Data.Span);
            if (_incoming.HasRoom)
                RoomKnown(null);
            later(new Event.SnapshotStored(covers, _incoming.BytesStored));
        });
    }

    /// <summary>Verifies and syncs what was received.</summary>
    public void Verify(LogPosition covers, ControlState control) => OnDisk(covers, () =>
    {
        if (_incoming is not { } installer || covers != _incomingCovers)
            return;
        installer.BeginVerify(control);
        Verify(covers, installer);
    });

    /// <summary>Removes what was received.</summary>
    public void Drop() => OnDisk(default, () =>
    {
        _incoming?.Discard();
        _incoming = null;
    });

    /// <summary>Switches in what was verified, then calls <paramref name="installed"/> on the writer executor.</summary>
    public void Install(ControlState control, Action installed) => context.Checkpoints.Post(new WorkAction(() =>
    {
        var installer = _incoming;
        _incoming = null;
        visit(() => Stop(installer ?? throw new ReplicaHaltedException("A snapshot was to be installed that was not received."), control, installed));
    }));

    private static LogPosition NameOf(SnapshotSource source) => new(source.Covers.Etag, source.Covers.ChainChecksum);

    private static LogPosition NameOf(SnapshotChunk chunk) => chunk.Covers.FromWire();

    private static SnapshotFault FaultOf(Exception failure) => failure switch
    {
        StorageIoException { IsDiskFull: true } => SnapshotFault.NoRoom,
        StorageIoException => SnapshotFault.Storage,
        // Anything else that bytes from another node can cause.
        _ => SnapshotFault.Damaged,
    };

    private void Verify(LogPosition covers, SnapshotInstaller installer)
    {
        if (_incoming != installer)
            return;
        var isWhole = installer.VerifyStep(VerifyStepBytes);
        later(new Event.SnapshotVerified(covers, installer.BytesVerified, isWhole));
        if (!isWhole)
            OnDisk(covers, () => Verify(covers, installer));
    }

    // A failure here fails the snapshot and not the replica, because nothing that it promised or acknowledged is stored there.
    private void OnDisk(LogPosition covers, Action action) => context.Checkpoints.Post(new WorkAction(() =>
    {
        if (_hasEnded)
            return;
        try
        {
            action();
        }
        catch (Exception failure)
        {
            Discard();
            if (FaultOf(failure) == SnapshotFault.NoRoom)
                RoomKnown(failure.Message);
            later(new Event.SnapshotFailed(covers, FaultOf(failure), failure.Message));
        }
    }));

    private void Discard()
    {
        try
        {
            _incoming?.Discard();
        }
        catch (StorageIoException failure)
        {
            // The next snapshot or the next start removes it.
            StoreLog.SnapshotNotRemoved(context.Log, failure.Message);
        }
        _incoming = null;
    }

    // Retried until the old store's outstanding writes have completed.
    private void Stop(SnapshotInstaller installer, ControlState control, Action installed)
    {
        if (!tryStop(() => context.Checkpoints.Post(new WorkAction(() => SwitchIn(installer, control, installed)))))
            context.JournalLanes[0].Post(new WorkAction(() => visit(() => Stop(installer, control, installed))));
    }

    // Not on the writer executor, which other shards share: renames are synced, and recovery reads files.
    private void SwitchIn(SnapshotInstaller installer, ControlState control, Action installed)
    {
        _retry?.Dispose();
        _retry = null;
        try
        {
            installer.SwitchIn(control);
            installer.Dispose();
            var store = ReplicaStore.Open(context, installer.Directory, mayRecover: true, control.Identity);
            RoomKnown(null);
            context.Writer.Post(new WorkAction(() =>
            {
                use(store);
                installed();
            }));
        }
        catch (StorageIoException full) when (full.IsDiskFull)
        {
            if (_hasEnded)
            {
                context.Writer.Post(new WorkAction(() => use(null)));
                return;
            }
            // The old state is stopped and the new one not open. Only space is missing, so the replica waits, and is merely slow.
            StoreLog.SnapshotWaitsForRoom(context.Log, full.Message);
            RoomKnown(full.Message);
            context.Writer.Post(new WorkAction(() => lacksRoom(full)));
            _retry = context.Time.CreateTimer(
                _ => context.Checkpoints.Post(new WorkAction(() => SwitchIn(installer, control, installed))), null, RoomInterval, Timeout.InfiniteTimeSpan);
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
