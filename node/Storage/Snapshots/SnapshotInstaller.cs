using System.Buffers.Binary;
using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Recovery;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.Snapshots;

/// <summary>
/// Receives a snapshot stream next to a replica's state, verifies it there and switches to it with one rename. Until then the old state serves, and a
/// crash leaves it unchanged. Checkpoint executor. Any exception before <see cref="SwitchIn"/> means that the snapshot has to be discarded and requested
/// again; nothing relies on it yet. An exception from it or later means that the replica's own disk is full or has failed.
/// </summary>
internal sealed class SnapshotInstaller : IDisposable
{
    /// <summary>Bytes stored between two syncs, so that no sync takes long, including the last.</summary>
    private const long SyncBytes = 64 << 20;

    private readonly StoreContext _context;
    private readonly StoreLayout _layout;
    private readonly (Etag Etag, uint ChainChecksum, long BytesTotal)? _announced;
    private byte[] _prefix = new byte[SnapshotStream.HeaderBytes];
    private SnapshotStream? _stream;
    private IStorageFile? _data;
    private PageStore? _pages;
    private StoreWalk? _walk;
    private ControlState? _control;
    private long _bytesSynced;
    private bool _isComplete;
    private bool _isRenamed;

    /// <summary>Begins in the directory of a replica, whose store may be open. An unfinished snapshot there is removed.</summary>
    /// <param name="context">The executors, disk and options of the replica's store.</param>
    /// <param name="directory">The replica's directory.</param>
    /// <param name="etag">The record that the snapshot should cover.</param>
    /// <param name="chainChecksum">The checksum of that record.</param>
    /// <param name="bytesTotal">The length that the stream should have, in bytes.</param>
    public SnapshotInstaller(StoreContext context, string directory, Etag etag, uint chainChecksum, long bytesTotal)
        : this(context, directory) =>
        _announced = (etag, chainChecksum, bytesTotal);

    /// <summary>The same for a snapshot of which nothing is known before it arrives, such as a backup.</summary>
    /// <param name="context">The executors, disk and options of the replica's store.</param>
    /// <param name="directory">The replica's directory.</param>
    public SnapshotInstaller(StoreContext context, string directory)
    {
        _context = context;
        _layout = new StoreLayout(directory);
        context.Files.DeleteDirectory(_layout.Incoming);
        context.Files.CreateDirectory(_layout.Incoming);
    }

    /// <summary>The replica's directory.</summary>
    public string Directory => _layout.Directory;

    /// <summary>Bytes stored without a gap, which is where the next chunk starts.</summary>
    public long BytesStored { get; private set; }

    /// <summary>Bytes that certainly follow, as far as is known yet. 0: the snapshot is complete.</summary>
    public long BytesWanted => (_stream?.BytesTotal ?? _prefix.Length) - BytesStored;

    /// <summary>Whether the space for all its pages is allocated.</summary>
    public bool HasRoom => _stream is not null;

    /// <summary>Bytes of verified pages.</summary>
    public long BytesVerified => _walk?.BytesWalked ?? 0;

    /// <summary>
    /// Stores the next bytes of the stream. They are durable only after <see cref="VerifyStep"/> has returned true. The space for all pages is allocated
    /// as soon as the table of pages is complete.
    /// </summary>
    /// <exception cref="CorruptStoreException">The bytes cannot be part of the snapshot.</exception>
    /// <exception cref="StorageIoException">There is no space, or the disk failed.</exception>
    public void Store(ReadOnlySpan<byte> chunk)
    {
        while (!chunk.IsEmpty)
        {
            var count = _stream is null ? StorePrefix(chunk) : StorePages(_stream, chunk);
            BytesStored += count;
            chunk = chunk[count..];
        }
        if (_data is null || BytesStored - _bytesSynced < SyncBytes)
            return;
        _data.Sync();
        _bytesSynced = BytesStored;
    }

    /// <summary>Called when all bytes are stored. Writes the data file's meta pages and begins the verification.</summary>
    /// <param name="control">Names the replica and shard that the state will belong to.</param>
    /// <exception cref="CorruptStoreException">Something is missing, or the state is not that of the record that it should cover.</exception>
    public void BeginVerify(ControlState control)
    {
        if (_stream is null || _data is null || BytesStored != _stream.BytesTotal)
            throw new CorruptStoreException($"The snapshot for '{_layout.Directory}' is incomplete; it ends after {BytesStored} bytes.");
        _control = control;
        for (var number = 0; number < 2; number++)
            RewriteMeta(_data, number, Covers, control);
        _data.Sync();
        _data.Dispose();
        _data = null;
        _pages = PageStore.Open(_context.Files, StoreLayout.Data(_layout.Incoming), _context.Options.Pages);
        _walk = _pages.BeginWalk();
    }

    /// <summary>
    /// Verifies about this many more bytes. True when all of it is intact, has a journal that continues after it, and is durable except for its
    /// directory's name.
    /// </summary>
    /// <exception cref="CorruptStoreException">The state is not valid.</exception>
    public bool VerifyStep(long bytesMax)
    {
        if (!_walk!.StepPublished(bytesMax))
            return false;
        _pages!.Dispose();
        _pages = null;
        StoreDirectory.CreateJournal(_context.Files, _context.Options, _layout.Incoming, _control!, Covers.Last);
        _context.Files.SyncDirectory(_layout.Incoming);
        _isComplete = true;
        return true;
    }

    /// <summary>Takes all steps of the verification at once.</summary>
    /// <returns>What the snapshot covers.</returns>
    public CheckpointPosition Complete(ControlState control)
    {
        BeginVerify(control);
        while (!VerifyStep(long.MaxValue))
        {
        }
        return Covers;
    }

    /// <summary>
    /// Makes the completed snapshot the replica's state; durable when this returns. The replica's store must no longer change anything and is opened again
    /// afterwards. After a full disk the call can be repeated.
    /// </summary>
    /// <param name="control">The hard state from here on. It must not name an etag after the snapshot's.</param>
    public void SwitchIn(ControlState control)
    {
        Invariant.Check(_isComplete, $"The snapshot for '{_layout.Directory}' was switched in before it was complete.");
        var files = _context.Files;
        // If the directory is not there any more, an earlier call renamed it and failed all the same.
        if (!_isRenamed && files.DirectoryExists(_layout.Incoming))
            files.Rename(_layout.Incoming, _layout.State(_layout.States(files).Max() + 1));
        _isRenamed = true;
        files.SyncDirectory(_layout.Directory);
        using var file = ControlFile.TryOpen(files, _layout.Control) ?? throw new CorruptStoreException($"Neither slot of '{_layout.Control}' is intact.");
        file.Write(control);
    }

    /// <summary>Discards the snapshot and frees its space.</summary>
    public void Discard()
    {
        Dispose();
        if (!_isRenamed)
            _context.Files.DeleteDirectory(_layout.Incoming);
    }

    /// <summary>Closes the file. A snapshot that was not switched in is removed when the store is opened.</summary>
    public void Dispose()
    {
        _data?.Dispose();
        _data = null;
        _pages?.Dispose();
        _pages = null;
    }

    private CheckpointPosition Covers => new(_stream!.Etag, StoreDirectory.FirstPosition, _stream.ChainChecksum);

    private int StorePrefix(ReadOnlySpan<byte> chunk)
    {
        var count = (int)Math.Min(chunk.Length, _prefix.Length - BytesStored);
        chunk[..count].CopyTo(_prefix.AsSpan((int)BytesStored));
        if (BytesStored + count < _prefix.Length)
            return count;
        var whole = SnapshotStream.PrefixBytesOf(SnapshotStream.ReadRunCount(_prefix, _layout.Directory));
        if (_prefix.Length < whole)
        {
            // Grow only as the bytes arrive: a sender that claims a long table has to send it.
            Array.Resize(ref _prefix, (int)Math.Min(whole, 2L * _prefix.Length));
            return count;
        }
        var stream = SnapshotStream.Decode(_prefix, _layout.Directory);
        if (_announced is { } announced && announced != (stream.Etag, stream.ChainChecksum, stream.BytesTotal))
            throw new CorruptStoreException($"The snapshot for '{_layout.Directory}' is not the one that its sender announced.");
        _prefix = [];
        TakeRoom(stream.FilePages * Page.Bytes);
        _stream = stream;
        return count;
    }

    /// <summary>
    /// Allocates the space before the pages arrive, so that nothing is sent in vain. Checks first, so that this does not fill the disk for other shards of
    /// the node.
    /// </summary>
    private void TakeRoom(long bytes)
    {
        var needed = bytes + _context.Options.SnapshotRoomBytes;
        if (_context.Files.AvailableBytes(_layout.Incoming) is var available && available < needed)
            throw new StorageIoException(
                "receive a snapshot in", _layout.Incoming, $"it needs {needed} bytes, but the disk has only {available}", isDiskFull: true);
        _data = _context.Files.Open(StoreLayout.Data(_layout.Incoming), new StorageFileOptions(StorageFileMode.CreateNew));
        _data.Resize(bytes);
    }

    private int StorePages(SnapshotStream stream, ReadOnlySpan<byte> chunk)
    {
        if (BytesStored >= stream.BytesTotal)
            throw new CorruptStoreException($"The snapshot for '{_layout.Directory}' is longer than the {stream.BytesTotal} bytes that its table lists.");
        var (fileOffset, bytes) = stream.Locate(BytesStored);
        var count = (int)Math.Min(chunk.Length, bytes);
        _data!.Write(chunk[..count], fileOffset);
        return count;
    }

    /// <summary>Rewrites the sender's meta page with this replica's identity and its new journal.</summary>
    private void RewriteMeta(IStorageFile data, long number, CheckpointPosition covers, ControlState control)
    {
        var page = new byte[Page.Bytes];
        data.Read(page, number * Page.Bytes);
        if (MetaPage.TryDecode(page, data.Path) is not { } meta || meta.PageNumber != number || meta.CheckpointPosition.Etag != covers.Etag
            || meta.FilePages != _stream!.FilePages)
            throw new CorruptStoreException($"Meta page {number} of the snapshot for '{_layout.Directory}' is damaged or belongs to another checkpoint.");
        meta = meta with { Identity = BinaryPrimitives.ReadUInt128LittleEndian(StoreDirectory.IdentityOf(control)), CheckpointPosition = covers };
        meta.Encode(page);
        data.Write(page, number * Page.Bytes);
    }
}
