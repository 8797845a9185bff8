using KvCluster.Storage.Control;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Shared;

namespace KvCluster.Storage.Recovery;

/// <summary>
/// What a node does with the shared journal that its last process left, before any replica is opened: puts each write back into the segment to which it
/// belongs, syncs the segments, and removes the shared journal. From then on each replica's directory is whole, and its own recovery decides about it. May be
/// interrupted and repeated: an incarnation of a segment has only one content at an offset, so what is put back twice is the same. One thread.
/// </summary>
/// <remarks>
/// A block at the end that is torn was never reported. One of which a later block says that it was durable is lost, if it cannot be read: the replicas that had
/// records in it, by the directories that later blocks repeat, get them as acknowledged in their control files. So those that lack them recover from their
/// peers, or are refused, as if their own journals had ended too early (<see cref="RecoveryDecisions"/>). If nobody knows which ones had, all of them do. The
/// same is told of a replica whose segment the disk refuses to open, write or sync.
/// </remarks>
internal sealed class SharedJournalReplay
{
    private readonly IFileSystem _files;
    private readonly string _root;
    private readonly string _directory;

    /// <summary>What the path of everything in the data directory begins with.</summary>
    private readonly string _below;

    /// <summary>The blocks that can be read, whatever is right in them, by number.</summary>
    private readonly SortedDictionary<ulong, (SharedBlock Block, ReadOnlyMemory<byte> Bytes)> _blocks = [];

    /// <summary>Directories that later blocks repeat.</summary>
    private readonly Dictionary<ulong, ReadOnlyMemory<byte>> _repeated = [];

    /// <summary>Segments that are to be written and synced.</summary>
    private readonly Dictionary<(string Path, ulong Incarnation, ReplicaId Replica), Segment> _segments = [];

    /// <summary>The newest write of each replica that its segment's disk has refused.</summary>
    private readonly Dictionary<ReplicaId, SharedEntry> _refused = [];
    private ulong _journal;
    private ulong _neededFrom;
    private bool _isUnreadable;

    private SharedJournalReplay(IFileSystem files, string root)
    {
        (_files, _root) = (files, Path.TrimEndingDirectorySeparator(root));
        _directory = Path.Combine(root, SharedJournal.DirectoryName);
        _below = Path.EndsInDirectorySeparator(_root) ? _root : _root + Path.DirectorySeparatorChar;
    }

    /// <summary>Writes that were put back.</summary>
    public int Writes { get; private set; }

    /// <summary>The replicas' directories, below the data directory, of which something is missing that was durable.</summary>
    public SortedSet<string> Losses { get; } = new(StringComparer.Ordinal);

    /// <summary>Whether a data directory has a shared journal that its last process did not remove.</summary>
    public static bool IsLeft(IFileSystem files, string root) => files.DirectoryExists(Path.Combine(root, SharedJournal.DirectoryName));

    /// <summary>Puts everything back and removes the shared journal of a data directory, if there is one.</summary>
    /// <param name="files">The disk.</param>
    /// <param name="root">The data directory. Nobody uses it.</param>
    /// <param name="replicas">The replicas' directories in it.</param>
    /// <exception cref="StorageIoException">An I/O error, or the disk is full. The shared journal is left as it was.</exception>
    /// <exception cref="FormatVersionException">It has another format version.</exception>
    public static SharedJournalReplay Settle(IFileSystem files, string root, IEnumerable<string> replicas)
    {
        var replay = new SharedJournalReplay(files, root);
        if (!IsLeft(files, root))
            return replay;
        try
        {
            replay.Read();
            foreach (var number in replay._blocks.Keys.Where(number => number >= replay._neededFrom))
                replay.PutBack(number);
            foreach (var segment in replay._segments.Values)
                replay.Sync(segment);
            replay.LookForLosses([.. replicas]);
        }
        finally
        {
            foreach (var segment in replay._segments.Values)
                segment.File?.Dispose();
        }
        replay.Remove();
        return replay;
    }

    private void Read()
    {
        List<(string Path, byte[] Bytes)> files = [];
        foreach (var name in _files.List(_directory))
        {
            using var file = _files.Open(Path.Combine(_directory, name), new StorageFileOptions(StorageFileMode.OpenExisting));
            var bytes = ReadWhole(file);
            files.Add((file.Path, bytes));
            if (SharedFile.TryReadHeader(bytes, file.Path, out var journal, out var neededFrom))
                (_journal, _neededFrom) = (journal, Math.Max(_neededFrom, neededFrom));
        }
        // Without a header it is not known what a block is. One that was just created has none, and is empty.
        _isUnreadable |= _journal == 0 && files.Exists(static file => file.Bytes.AsSpan().ContainsAnyExcept((byte)0));
        foreach (var (path, bytes) in files)
        {
            // Each place, also those within a block: it may be one of an earlier use of the file, over a part of which a later one was written.
            for (var at = SharedFile.HeaderBytes; at < bytes.Length; at += AlignedBuffer.Alignment)
                Add(bytes.AsMemory(at), path);
        }
    }

    /// <summary>Reads a file; what cannot be read is zero, which is never a block.</summary>
    private byte[] ReadWhole(IStorageFile file)
    {
        var bytes = new byte[file.Length];
        for (var at = 0; at < bytes.Length; at += AlignedBuffer.Alignment)
        {
            try
            {
                file.Read(bytes.AsSpan(at, Math.Min(AlignedBuffer.Alignment, bytes.Length - at)), at);
            }
            catch (StorageIoException)
            {
                // A torn write does not cause that, so a block may have been there.
                _isUnreadable = true;
            }
        }
        return bytes;
    }

    private void Add(ReadOnlyMemory<byte> source, string path)
    {
        if (!SharedBlock.TryRead(source.Span, path, out var block) || block.Journal != _journal || block.Bytes > source.Length)
            return;
        var repeated = source.Slice(block.RepeatedOffset, block.RepeatedBytes);
        if (Crc32C.Of(repeated.Span) == block.RepeatedChecksum)
        {
            foreach (var (number, directory) in SharedBlock.ReadRepeated(repeated))
                _repeated[number] = directory;
        }
        _neededFrom = Math.Max(_neededFrom, block.NeededFrom);
        // A header that is intact proves what it says. Whether its block has arrived is seen from what the block has.
        _blocks[block.Number] = (block, source[..block.Bytes]);
    }

    private static List<SharedEntry>? DirectoryOf(in SharedBlock block, ReadOnlyMemory<byte> bytes)
    {
        var directory = bytes.Slice(SharedBlock.HeaderBytes, block.DirectoryBytes);
        return Crc32C.Of(directory.Span) == block.DirectoryChecksum ? SharedBlock.ReadDirectory(directory) : null;
    }

    /// <summary>
    /// The writes of a block, by its own directory or by one that repeats it, each with its records; null instead of those that are not what was written. Null
    /// if both directories are lost.
    /// </summary>
    private List<(SharedEntry Entry, ReadOnlyMemory<byte>? Records)>? WritesOf(ulong number)
    {
        var isFound = _blocks.TryGetValue(number, out var found);
        var entries = (isFound ? DirectoryOf(found.Block, found.Bytes) : null)
            ?? (_repeated.TryGetValue(number, out var directory) ? SharedBlock.ReadDirectory(directory) : null);
        if (entries is null)
            return null;
        var writes = new List<(SharedEntry Entry, ReadOnlyMemory<byte>? Records)>(entries.Count);
        var rest = isFound ? found.Bytes.Slice(found.Block.ContentOffset, found.Block.ContentBytes) : default;
        foreach (var entry in entries)
        {
            var isThere = entry.Bytes >= 0 && entry.Bytes <= rest.Length;
            var records = isThere ? rest[..entry.Bytes] : default;
            writes.Add((entry, isThere && Crc32C.Of(records.Span) == entry.Checksum ? records : (ReadOnlyMemory<byte>?)null));
            rest = isThere ? rest[entry.Bytes..] : default;
        }
        return writes;
    }

    private void PutBack(ulong number)
    {
        foreach (var (entry, records) in WritesOf(number) ?? [])
        {
            if (records is { } intact)
                PutBack(SegmentOf(entry), entry, intact.Span);
        }
    }

    /// <summary>
    /// Writes records to where they were to be, each filled up to whole blocks with zeros. Where the disk refuses that, and not for want of space, they are
    /// lost: the other replicas must not wait for a disk that never takes them.
    /// </summary>
    private void PutBack(Segment segment, in SharedEntry entry, ReadOnlySpan<byte> records)
    {
        if (segment.IsRefused)
            _refused[entry.Replica] = entry;
        if (segment.File is null)
            return;
        try
        {
            segment.Last = entry;
            PutBack(segment.File, entry.Offset, records);
            Writes++;
        }
        catch (StorageIoException failure) when (!failure.IsDiskFull)
        {
            _refused[entry.Replica] = entry;
        }
    }

    private static void PutBack(IStorageFile segment, long offset, ReadOnlySpan<byte> records)
    {
        var padded = Array.Empty<byte>();
        while (RecordEnvelope.TryRead(records, out var envelope) && RecordEnvelope.Bytes + envelope.BodyBytes <= records.Length)
        {
            var bytes = RecordEnvelope.RecordBytes(envelope.BodyBytes);
            if (padded.Length < bytes)
                padded = new byte[bytes];
            var record = records[..(RecordEnvelope.Bytes + envelope.BodyBytes)];
            record.CopyTo(padded);
            padded.AsSpan(record.Length..bytes).Clear();
            segment.Write(padded.AsSpan(0, bytes), offset);
            offset += bytes;
            records = records[record.Length..];
        }
    }

    private void Sync(Segment segment)
    {
        try
        {
            segment.File?.Sync();
        }
        catch (StorageIoException failure) when (!failure.IsDiskFull)
        {
            _refused[segment.Last.Replica] = segment.Last;
        }
    }

    /// <summary>
    /// The segment of a write. It has no file if it is not there any more: its file is gone, is erased to be used again, or is another segment by now. Where
    /// the header is damaged the records are put back all the same, because the replica's recovery finds by them that a header is lost.
    /// </summary>
    private Segment SegmentOf(in SharedEntry entry)
    {
        var path = PathOf(entry);
        var key = (path, entry.Incarnation, entry.Replica);
        if (_segments.TryGetValue(key, out var known))
            return known;
        var segment = _segments[key] = new Segment();
        try
        {
            if (_files.FileExists(path))
                segment.File = _files.Open(path, new StorageFileOptions(StorageFileMode.OpenExisting));
        }
        catch (StorageIoException failure) when (!failure.IsDiskFull)
        {
            segment.IsRefused = true;
        }
        if (segment.File is { } file && !IsOf(entry, file))
        {
            file.Dispose();
            segment.File = null;
        }
        return segment;
    }

    private static bool IsOf(in SharedEntry entry, IStorageFile file)
    {
        var block = new byte[SegmentHeader.BlockBytes];
        try
        {
            if (file.Read(block, 0) < block.Length || !block.AsSpan().ContainsAnyExcept((byte)0))
                return false;
        }
        catch (StorageIoException)
        {
            return true;
        }
        return !SegmentHeader.TryRead(block, file.Path, out var header) || (header.Incarnation == entry.Incarnation && header.ReplicaId == entry.Replica);
    }

    /// <exception cref="CorruptStoreException">It is not below the data directory. No process wrote that.</exception>
    private string PathOf(in SharedEntry entry)
    {
        var name = System.Text.Encoding.UTF8.GetString(entry.Name.Span);
        var path = Path.GetFullPath(Path.Combine(_root, name));
        return path.StartsWith(_below, StringComparison.Ordinal) ? path
            : throw new CorruptStoreException($"A block in '{_directory}' is intact, and has records of '{name}', which is not in the data directory");
    }

    private void LookForLosses(IReadOnlyList<string> replicas)
    {
        foreach (var refused in _refused.Values)
            Lose(replicas, refused);
        if (_isUnreadable)
        {
            LoseAll(replicas);
            return;
        }
        var durableBefore = _blocks.Count == 0 ? 0 : _blocks.Values.Max(static found => found.Block.DurableBefore);
        for (var number = _neededFrom; number < durableBefore; number++)
        {
            if (WritesOf(number) is not { } writes)
            {
                LoseAll(replicas);
                return;
            }
            foreach (var (entry, records) in writes)
            {
                if (records is null)
                    Lose(replicas, entry);
            }
        }
    }

    private void Lose(IReadOnlyList<string> replicas, in SharedEntry entry)
    {
        if (SegmentOf(entry) is { File: null, IsRefused: false })
            return;
        var path = PathOf(entry);
        foreach (var replica in replicas)
        {
            if (path.StartsWith(replica + Path.DirectorySeparatorChar, StringComparison.Ordinal))
                Lose(replica, entry.Last);
        }
    }

    private void LoseAll(IReadOnlyList<string> replicas)
    {
        foreach (var replica in replicas)
            Lose(replica, Etag.MaxValue);
    }

    /// <summary>Notes in a replica's control file that it had a record. One without a control file is refused anyway.</summary>
    private void Lose(string replica, Etag last)
    {
        var path = new StoreLayout(replica).Control;
        using var control = _files.FileExists(path) ? ControlFile.TryOpen(_files, path) : null;
        if (control is null)
            return;
        // No replica has appended beyond the epoch that it promised.
        var mark = last == Etag.MaxValue ? new Etag(control.State.PromisedEpoch, ulong.MaxValue) : last;
        if (control.State.Acknowledged < mark)
            control.Write(control.State with { Acknowledged = mark });
        Losses.Add(Path.GetRelativePath(_root, replica));
    }

    private void Remove()
    {
        // What was put back is durable. As long as a file is left, it says so, because the others may be gone by then.
        var neededFrom = _blocks.Count == 0 ? _neededFrom : Math.Max(_neededFrom, _blocks.Keys.Last() + 1);
        // Without a header there was no block. One that names no journal would look like one that is lost.
        foreach (var name in _journal == 0 ? [] : _files.List(_directory))
        {
            using var file = _files.Open(Path.Combine(_directory, name), new StorageFileOptions(StorageFileMode.OpenExisting));
            SharedFile.WriteHeader(file, _journal, neededFrom);
            file.Sync();
        }
        _files.DeleteDirectory(_directory);
        _files.SyncDirectory(_root);
    }

    /// <summary>A segment of which blocks have something.</summary>
    private sealed class Segment
    {
        /// <summary>Its file; null if it is not there any more, or cannot be opened.</summary>
        public IStorageFile? File { get; set; }

        /// <summary>Whether it is there and cannot be opened.</summary>
        public bool IsRefused { get; set; }

        /// <summary>The newest write that was put back.</summary>
        public SharedEntry Last { get; set; }
    }
}
