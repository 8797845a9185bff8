using System.Buffers;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Threads;
using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Storage.Shared;

/// <summary>
/// Makes records of several shards durable with one write. A block has the records of all shards that wait for a journal executor; when it is durable, so are
/// they, and each is written into its own segment through the page cache, without a sync. Segments are synced later, in the background, many records at a
/// time; then the file with the blocks is used again. What a power failure takes from segments, a recovery puts back from the blocks before any replica is
/// opened (<c>Recovery/SharedJournalReplay.cs</c>). So whoever reads a segment, in this process or after a crash of it alone, finds there what was reported.
/// </summary>
/// <remarks>
/// It is never needed: a shard that is alone writes into its segment as without it, and so do all if there is no file to write to, because the disk has little
/// space or the syncs of the background are behind. One for the directory of a node. Lanes use it on their executors, the background on its own.
/// </remarks>
internal sealed class SharedJournal : IDisposable
{
    /// <summary>The name of its directory in a data directory.</summary>
    public const string DirectoryName = "shared";

    /// <summary>Files, of which one is written while the segments of another are synced.</summary>
    public const int FilesMax = 3;

    /// <summary>The length of each file of a node: some seconds of many shards' small records.</summary>
    public const int FileBytesOfNode = 16 << 20;

    /// <summary>There is no shared journal where a file system has less space than this many of its files.</summary>
    private const int FreeFilesMin = 32;

    private readonly Lock _lock = new();

    /// <summary>
    /// Held during syncs of segments, so that one that somebody waits for is not thought done while another thread is at it. Taken before the other lock.
    /// </summary>
    private readonly Lock _syncing = new();
    private readonly IFileSystem _files;
    private readonly string _root;
    private readonly string _directory;
    private readonly Action<Exception>? _failed;
    private readonly ILogger _log;
    private readonly ulong _id;
    private readonly int _fileBytes;
    private readonly (ISerialExecutor Executor, SharedLane Lane)[] _lanes;
    private readonly ISerialExecutor _background;
    private readonly IWorkItem _tidy;

    /// <summary>Files whose next use is prepared.</summary>
    private readonly Queue<SharedFile> _ready = new();

    /// <summary>Files without space for further blocks, oldest first.</summary>
    private readonly Queue<SharedFile> _full = new();

    /// <summary>Segments of which the disk may lack something.</summary>
    private readonly HashSet<UnsyncedFile> _unsynced = [];

    /// <summary>Blocks on their way, by number.</summary>
    private readonly SortedSet<ulong> _inFlight = [];

    /// <summary>The directories of blocks from the last durable one on, by number.</summary>
    private readonly Queue<(ulong Number, byte[] Bytes, int Count)> _recent = new();
    private SharedFile? _current;
    private int _count;
    private long _uses;
    private ulong _next = 1;
    private ulong _neededFrom = 1;
    private bool _isTidying;
    private bool _createsNoMore;
    private volatile bool _isClosed;
    private volatile Exception? _failure;

    /// <summary>Creates nothing yet. Nothing is left of an earlier one: see <c>SharedJournalReplay</c>.</summary>
    /// <param name="files">The disk.</param>
    /// <param name="root">The data directory, below which all segments are.</param>
    /// <param name="id">Random, so that nothing else looks like a block of it.</param>
    /// <param name="fileBytes">The length of each file.</param>
    /// <param name="executors">Those of the shards' journals.</param>
    /// <param name="background">Syncs segments and creates files.</param>
    /// <param name="failed">Called once if it fails, on the thread that finds out. Must not block.</param>
    /// <param name="log">Told why shards write alone.</param>
    public SharedJournal(
        IFileSystem files,
        string root,
        ulong id,
        int fileBytes,
        IEnumerable<ISerialExecutor> executors,
        ISerialExecutor background,
        Action<Exception>? failed = null,
        ILogger? log = null)
    {
        _failed = failed;
        _log = log ?? NullLogger.Instance;
        ArgumentOutOfRangeException.ThrowIfLessThan(fileBytes, SharedFile.HeaderBytes + SharedBlock.BytesMax);
        _files = files;
        _root = root;
        _directory = Path.Combine(root, DirectoryName);
        _id = id;
        _fileBytes = fileBytes;
        _lanes = [.. executors.Select(executor => (executor, new SharedLane(this, executor)))];
        _background = background;
        _tidy = new WorkAction(Tidy);
    }

    /// <summary>What has failed; null while it works. Then nothing is written together any more, and the next record of each shard ends its store.</summary>
    public Exception? Failure => _failure;

    /// <summary>Whether shards write together as far as there is space for it. Any thread.</summary>
    public bool IsOpen => !_isClosed;

    /// <summary>Blocks that were written, for tests.</summary>
    public ulong Blocks => _next - 1;

    /// <summary>The lane of an executor.</summary>
    public SharedLane LaneOf(ISerialExecutor executor) => Array.Find(_lanes, lane => lane.Executor == executor).Lane;

    /// <summary>Opens a segment for writes through the page cache.</summary>
    public UnsyncedFile Open(string path)
    {
        var name = System.Text.Encoding.UTF8.GetBytes(Path.GetRelativePath(_root, path));
        Invariant.Check(name.Length <= SharedBlock.NameBytesMax, $"The name of the segment '{path}' has {name.Length} bytes.");
        return new UnsyncedFile(_files.Open(path, new StorageFileOptions(StorageFileMode.OpenExisting)), name, Path.GetDirectoryName(path)!);
    }

    /// <summary>Takes a place for a block and completes the block in the buffer. False if there is none at the moment.</summary>
    public bool TryTake(Span<byte> buffer, ref SharedBlock block, out SharedPlace place)
    {
        lock (_lock)
        {
            place = default;
            if (_isClosed)
                return false;
            // Numbers are used in the order of submission, so a block says of those before it what is true.
            var durableBefore = _inFlight.Count > 0 ? _inFlight.Min : _next;
            while (_recent.TryPeek(out var oldest) && oldest.Number + 1 < durableBefore)
                ArrayPool<byte>.Shared.Return(_recent.Dequeue().Bytes);
            var repeatedBytes = 0;
            foreach (var (_, bytes, count) in _recent)
                repeatedBytes += SharedBlock.RepeatedBytesOf(bytes.AsSpan(0, count));
            block = block with { Journal = _id, Number = _next, DurableBefore = durableBefore, NeededFrom = _neededFrom, RepeatedBytes = repeatedBytes };
            // While one is on its way for long, those after it repeat more and more.
            if (block.RepeatedOffset + repeatedBytes > buffer.Length || !TryFindFileLocked(block.Bytes))
                return false;
            var repeated = buffer.Slice(block.RepeatedOffset, repeatedBytes);
            foreach (var (number, bytes, count) in _recent)
                repeated = repeated[SharedBlock.WriteRepeated(repeated, number, bytes.AsSpan(0, count))..];
            block = block with { RepeatedChecksum = Crc32C.Of(buffer.Slice(block.RepeatedOffset, repeatedBytes)) };
            block.WriteTo(buffer);
            var end = block.RepeatedOffset + repeatedBytes;
            buffer[end..block.Bytes].Clear();
            var directory = ArrayPool<byte>.Shared.Rent(block.DirectoryBytes);
            buffer.Slice(SharedBlock.HeaderBytes, block.DirectoryBytes).CopyTo(directory);
            _recent.Enqueue((_next, directory, block.DirectoryBytes));
            _inFlight.Add(_next);
            place = new SharedPlace(this, _current!, _next, _current!.Take(_next, block.Bytes));
            _next++;
            return true;
        }
    }

    /// <summary>Notes that a segment was written through the page cache, for a block that is in a use of a file.</summary>
    public void Note(UnsyncedFile file, long use)
    {
        lock (_lock)
        {
            // Of two writes on their way the later one may end first.
            if (file.Since == 0 || use < file.Since)
                file.Since = use;
            _unsynced.Add(file);
        }
    }

    /// <summary>Its owner writes no more to a segment. What the disk lacks of it is still synced.</summary>
    public void Release(UnsyncedFile file)
    {
        lock (_lock)
        {
            file.IsReleased = true;
            CloseIfDoneLocked(file);
            // Soon, because the space of a segment that is deleted is in use as long as it is open.
            if (file.Since != 0)
                TidyLaterLocked();
        }
    }

    /// <summary>Syncs the segments of a journal that nobody writes any more, so that its directory is whole: it may be moved or copied from here on.</summary>
    /// <exception cref="StorageIoException">An I/O error.</exception>
    public void Settle(string directory) => Sync(file => file.Directory == directory);

    /// <summary>Takes no further block: shards write alone from here on.</summary>
    public void Close(Exception reason)
    {
        _isClosed = true;
        SharedLog.Closed(_log, reason.Message);
    }

    /// <summary>Fails everything: something that was to be durable is perhaps not. The process has to end, and the next start to recover.</summary>
    public void Fail(Exception failure)
    {
        // Whatever it is, the disk may lack what it was to have.
        failure = failure as StorageIoException ?? new StorageIoException("write the shared journal below", _root, failure.Message, isDiskFull: false, failure);
        if (Interlocked.CompareExchange(ref _failure, failure, null) is not null)
            return;
        SharedLog.Failed(_log, failure.Message);
        _failed?.Invoke(failure);
    }

    /// <summary>
    /// Syncs all segments and removes the files. Every journal is closed, and the executors run nothing of it any more. If anything has failed, all is left to
    /// the next start.
    /// </summary>
    public void Dispose()
    {
        foreach (var (_, lane) in _lanes)
            lane.Dispose();
        try
        {
            if (_failure is null && _count > 0)
            {
                Sync(static _ => true);
                Remove(All);
            }
        }
        finally
        {
            foreach (var file in All)
                file.Dispose();
        }
    }

    private SharedFile[] All => [.. _full, .. _ready, .. _current is null ? [] : (SharedFile[])[_current]];

    private void Remove(IEnumerable<SharedFile> all)
    {
        // All of them first: as long as one is left, it says that nothing is missing in the others.
        foreach (var file in all)
            file.Begin(file.Use, _id, _next);
        _files.DeleteDirectory(_directory);
        _files.SyncDirectory(_root);
    }

    internal void NoteDurable(ulong number)
    {
        lock (_lock)
            _inFlight.Remove(number);
    }

    internal void Leave(SharedFile file)
    {
        lock (_lock)
        {
            file.Users--;
            if (file.Users == 0 && file != _current)
                TidyLaterLocked();
        }
    }

    /// <summary>Makes a file with space for a block the current one.</summary>
    private bool TryFindFileLocked(int bytes)
    {
        Invariant.CheckHeld(_lock);
        if (_current is { } current && current.End + bytes <= current.Length)
            return true;
        if (_current is not null)
            _full.Enqueue(_current);
        var isFound = _ready.TryDequeue(out _current);
        if (_ready.Count == 0)
            TidyLaterLocked();
        return isFound;
    }

    private void TidyLaterLocked()
    {
        Invariant.CheckHeld(_lock);
        if (_isTidying)
            return;
        _isTidying = true;
        _background.Post(_tidy);
    }

    /// <summary>
    /// Syncs segments that nobody writes any more, and makes files ready: full ones, when their segments are synced, and new ones. Background executor.
    /// </summary>
    private void Tidy()
    {
        lock (_lock)
            _isTidying = false;
        try
        {
            if (_failure is null)
                Sync(static unsynced => unsynced.IsReleased);
            while (_failure is null && (TryFreeOldest() || TryCreate()))
            {
            }
        }
        catch (StorageIoException failure) when (failure.IsDiskFull)
        {
            // A header, or what is to be deleted. What the files have is needed no more, or is still said to be.
            Close(failure);
        }
        catch (Exception failure)
        {
            Fail(failure);
        }
    }

    private bool TryFreeOldest()
    {
        SharedFile file;
        lock (_lock)
        {
            if (!_full.TryPeek(out file!) || file.Users > 0)
                return false;
        }
        Sync(unsynced => unsynced.Since <= file.Use);
        var neededFrom = file.Newest + 1;
        long use;
        lock (_lock)
            use = ++_uses;
        file.Begin(use, _id, neededFrom);
        lock (_lock)
        {
            _full.Dequeue();
            _ready.Enqueue(file);
            _neededFrom = neededFrom;
        }
        return true;
    }

    private bool TryCreate()
    {
        int index;
        long use;
        ulong neededFrom;
        lock (_lock)
        {
            if (_isClosed || _createsNoMore || _count == FilesMax || _ready.Count > 0)
                return false;
            (index, use, neededFrom) = (_count, ++_uses, _neededFrom);
        }
        SharedFile? file = null;
        var reason = $"there is less space than {FreeFilesMin} times that of a file, or no direct I/O";
        try
        {
            if (_files.AvailableBytes(_root) / FreeFilesMin >= _fileBytes)
            {
                _files.CreateDirectory(_directory);
                _files.SyncDirectory(_root);
                file = SharedFile.TryCreate(_files, _directory, index, _fileBytes);
                file?.Begin(use, _id, neededFrom);
            }
        }
        catch (StorageIoException failure)
        {
            // Nothing is in it, so nothing is lost.
            file?.Dispose();
            (file, reason) = (null, failure.Message);
        }
        lock (_lock)
        {
            if (file is not null)
            {
                _count++;
                _ready.Enqueue(file);
                return true;
            }
            // As long as the process runs it goes on with what it has.
            _createsNoMore = true;
            _isClosed |= index == 0;
        }
        SharedLog.NoFile(_log, index, reason);
        RemoveUnused(index);
        return false;
    }

    /// <summary>Removes what is left of a file that could not be made, and the directory if it was to be the first one.</summary>
    private void RemoveUnused(int index)
    {
        try
        {
            if (_files.DirectoryExists(_directory))
                _files.Delete(SharedFile.PathOf(_directory, index));
            if (index == 0)
                _files.DeleteDirectory(_directory);
        }
        catch (StorageIoException failure)
        {
            // It is empty, or has a header that is true. The next start removes it.
            SharedLog.NoFile(_log, index, failure.Message);
        }
    }

    private void Sync(Func<UnsyncedFile, bool> isMeant)
    {
        lock (_syncing)
        {
            // What a failed sync has dropped is not written by another one, and those that were to be synced with it are not known any more.
            if (_failure is { } failure)
                throw new StorageIoException("sync all segments below", _root, failure.Message, isDiskFull: false, failure);
            UnsyncedFile[] files;
            lock (_lock)
            {
                files = [.. _unsynced.Where(isMeant)];
                foreach (var file in files)
                {
                    // What is written from here on may not be in this sync.
                    (file.Since, file.IsSyncing) = (0, true);
                    _unsynced.Remove(file);
                }
            }
            SyncEach(files);
        }
    }

    private void SyncEach(UnsyncedFile[] files)
    {
        // The disk gets all of it at once. Syncs one after the other would each wait for its own, and with a thousand segments new blocks come faster.
        foreach (var file in files)
            OrFail(file.BeginSync);
        foreach (var file in files)
        {
            OrFail(file.Sync);
            lock (_lock)
            {
                file.IsSyncing = false;
                CloseIfDoneLocked(file);
            }
        }
    }

    private void OrFail(Action step)
    {
        try
        {
            step();
        }
        catch (StorageIoException failure)
        {
            // Not as a full disk: the system may have dropped what it could not write, and only the blocks have it.
            Fail(new StorageIoException("sync a segment below", _root, failure.Message, isDiskFull: false, failure));
            throw;
        }
    }

    private void CloseIfDoneLocked(UnsyncedFile file)
    {
        Invariant.CheckHeld(_lock);
        if (file is { IsReleased: true, IsSyncing: false, Since: 0 })
            file.Close();
    }
}

/// <summary>The place of a block on its way into a file of the shared journal.</summary>
internal readonly struct SharedPlace(SharedJournal journal, SharedFile file, ulong number, int offset)
{
    /// <summary>The use of the file.</summary>
    public long Use => file.Use;

    /// <summary>Writes the block, which is durable when this returns.</summary>
    /// <exception cref="StorageIoException">An I/O error. The block may have arrived.</exception>
    public void WriteDurable(ReadOnlySpan<byte> block) => file.WriteDurable(block, offset);

    /// <summary>Notes that it is durable.</summary>
    public void NoteDurable() => journal.NoteDurable(number);

    /// <summary>Its records are in the page cache of their segments.</summary>
    public void Leave() => journal.Leave(file);
}
