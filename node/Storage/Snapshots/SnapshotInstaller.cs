using System.Buffers.Binary;
using KvCluster.Storage.Control;
using KvCluster.Storage.Files;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Recovery;

namespace KvCluster.Storage.Snapshots;

/// <summary>
/// Receives a snapshot stream beside a replica's state and switches it in by one rename; until then the old state answers, and a crash
/// leaves it as it was. One thread at a time. An exception means that the snapshot is to be begun anew, or that the disk has failed.
/// </summary>
internal sealed class SnapshotInstaller : IDisposable
{
    private readonly StoreContext _context;
    private readonly StoreLayout _layout;
    private byte[] _prefix = new byte[SnapshotStream.HeaderBytes];
    private SnapshotStream? _stream;
    private IStorageFile? _data;
    private bool _isComplete;

    /// <summary>Begins in the directory of a replica, whose store may be open; an unfinished snapshot there is removed.</summary>
    public SnapshotInstaller(StoreContext context, string directory)
    {
        _context = context;
        _layout = new StoreLayout(directory);
        context.Files.DeleteDirectory(_layout.Incoming);
        context.Files.CreateDirectory(_layout.Incoming);
    }

    /// <summary>The replica's directory.</summary>
    public string Directory => _layout.Directory;

    /// <summary>Bytes stored without a gap: where the next chunk starts.</summary>
    public long BytesStored { get; private set; }

    /// <summary>Stores the next bytes of the stream; they are durable only after <see cref="Complete"/>.</summary>
    /// <exception cref="CorruptStoreException">They cannot be part of a snapshot.</exception>
    public void Store(ReadOnlySpan<byte> chunk)
    {
        while (!chunk.IsEmpty)
        {
            var count = _stream is null ? StorePrefix(chunk) : StorePages(_stream, chunk);
            BytesStored += count;
            chunk = chunk[count..];
        }
    }

    /// <summary>
    /// All bytes are stored: gives the data file its meta pages and the new state a journal that goes on behind it, walks it all and syncs
    /// it. Takes as long as reading the data file.
    /// </summary>
    /// <param name="control">Names the replica and shard that the state belongs to.</param>
    /// <returns>What the snapshot covers.</returns>
    public Coverage Complete(ControlState control)
    {
        if (_stream is null || _data is null || BytesStored != _stream.BytesTotal)
            throw new CorruptStoreException($"The snapshot for '{_layout.Directory}' ends after {BytesStored} bytes.");
        var covers = new Coverage(_stream.Etag, new JournalPosition(1, SegmentHeader.BlockBytes), _stream.ChainChecksum);
        for (var number = 0; number < 2; number++)
            RewriteMeta(_data, number, covers, control);
        _data.Sync();
        _data.Dispose();
        _data = null;
        using (var pages = PageStore.Open(_context.Files, StoreLayout.Data(_layout.Incoming), _context.Options.Pages))
            pages.Verify();
        StoreDirectory.CreateJournal(
            _context, _layout.Incoming, control, new RecordRef(covers.Etag, default, covers.ChainChecksum, 0, 0, RecordFlags.None));
        _context.Files.SyncDirectory(_layout.Incoming);
        _isComplete = true;
        return covers;
    }

    /// <summary>
    /// Makes the completed snapshot the replica's state, durably. The replica's store must change nothing any more; it is opened again afterwards.
    /// </summary>
    /// <param name="control">The promises from here on; must name no etag behind the snapshot's.</param>
    public void SwitchIn(ControlState control)
    {
        Invariant.Check(_isComplete, $"A snapshot of '{_layout.Directory}' is switched in before it is complete.");
        var files = _context.Files;
        var state = _layout.States(files).Max() + 1;
        files.Rename(_layout.Incoming, _layout.State(state));
        files.SyncDirectory(_layout.Directory);
        using var file = ControlFile.TryOpen(files, _layout.Control) ?? throw new CorruptStoreException($"'{_layout.Control}' is not readable.");
        file.Write(control);
    }

    /// <summary>Lets go of the file; what is not switched in is removed when the store is opened.</summary>
    public void Dispose() => _data?.Dispose();

    private int StorePrefix(ReadOnlySpan<byte> chunk)
    {
        var count = (int)Math.Min(chunk.Length, _prefix.Length - BytesStored);
        chunk[..count].CopyTo(_prefix.AsSpan((int)BytesStored));
        if (BytesStored + count < _prefix.Length)
            return count;
        var whole = SnapshotStream.PrefixBytesOf(SnapshotStream.ReadRunCount(_prefix, _layout.Directory));
        if (_prefix.Length < whole)
        {
            Array.Resize(ref _prefix, (int)whole);
            return count;
        }
        var stream = SnapshotStream.Decode(_prefix, _layout.Directory);
        _data = _context.Files.Open(StoreLayout.Data(_layout.Incoming), new StorageFileOptions(StorageFileMode.CreateNew));
        _data.Resize(stream.FilePages * Page.Bytes);
        _stream = stream;
        return count;
    }

    private int StorePages(SnapshotStream stream, ReadOnlySpan<byte> chunk)
    {
        if (BytesStored >= stream.BytesTotal)
            throw new CorruptStoreException($"The snapshot for '{_layout.Directory}' is longer than the {stream.BytesTotal} bytes that it names.");
        var (fileOffset, bytes) = stream.Locate(BytesStored);
        var count = (int)Math.Min(chunk.Length, bytes);
        _data!.Write(chunk[..count], fileOffset);
        return count;
    }

    /// <summary>The sender's meta page, with this replica's identity and its new journal.</summary>
    private void RewriteMeta(IStorageFile data, long number, Coverage covers, ControlState control)
    {
        var page = new byte[Page.Bytes];
        data.Read(page, number * Page.Bytes);
        if (MetaPage.TryDecode(page, data.Path) is not { } meta || meta.PageNumber != number || meta.Coverage.Etag != covers.Etag)
            throw new CorruptStoreException($"The snapshot for '{_layout.Directory}' has a damaged meta page {number}.");
        meta = meta with { Identity = BinaryPrimitives.ReadUInt128LittleEndian(StoreDirectory.IdentityOf(control)), Coverage = covers };
        meta.Encode(page);
        data.Write(page, number * Page.Bytes);
    }
}
