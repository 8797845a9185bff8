using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Shared;

/// <summary>
/// Writes what the shards have for one journal executor: together in a block of the shared journal what has gathered while the write before was on its way, and
/// alone, as without a shared journal, what is alone, too long, or finds no place there. Used on that executor.
/// </summary>
internal sealed class SharedLane(SharedJournal journal, ISerialExecutor executor) : IWorkItem, IDisposable
{
    /// <summary>A longer write is written alone: to write it twice would cost more than a write of its own.</summary>
    public const int WriteBytesMax = 64 << 10;

    private readonly Queue<SharedWrite> _waiting = new();
    private readonly List<SharedWrite> _taken = [];
    private AlignedBuffer? _buffer;
    private bool _isPosted;

    /// <summary>Takes a write. It is on its way when the executor has run what was posted to it before, so others can join it.</summary>
    public void Add(SharedWrite write)
    {
        _waiting.Enqueue(write);
        PostOnce();
    }

    /// <inheritdoc/>
    public void Execute()
    {
        _isPosted = false;
        Take();
        if (journal.Failure is { } failure)
            End(failure);
        else if (_taken.Count < 2 || !TryWriteTogether())
            WriteAlone();
        // Only now, because what a shard has to do next, such as filling a segment, may take longer than the write, and the others are to be answered.
        foreach (var write in _taken)
            write.Continue();
        _taken.Clear();
        if (_waiting.Count > 0)
            PostOnce();
    }

    /// <summary>Gives its memory back. The executor runs nothing of it any more.</summary>
    public void Dispose() => _buffer?.Dispose();

    private void PostOnce()
    {
        if (_isPosted)
            return;
        _isPosted = true;
        executor.Post(this);
    }

    private void Take()
    {
        for (var bytes = 0; _taken.Count < SharedBlock.WritesMax && _waiting.TryPeek(out var write); bytes += write.Bytes)
        {
            if (bytes + write.Bytes > SharedBlock.ContentBytesMax && _taken.Count > 0)
                break;
            _taken.Add(_waiting.Dequeue());
        }
    }

    /// <summary>Ends all that were taken, without a write.</summary>
    private void End(Exception failure)
    {
        foreach (var write in _taken)
            write.End(failure);
    }

    private void WriteAlone()
    {
        foreach (var write in _taken)
            write.End(FailureOf(write, isTogether: false));
    }

    /// <summary>False if there is no place in the shared journal; nothing was written then.</summary>
    private bool TryWriteTogether()
    {
        if (!journal.IsOpen || !_taken.TrueForAll(static write => write.TryJoin()))
            return false;
        _buffer ??= new AlignedBuffer(SharedBlock.BytesMax);
        var block = Compose(_buffer.Span);
        if (!journal.TryTake(_buffer.Span, ref block, out var place))
            return false;
        try
        {
            place.WriteDurable(_buffer.Span[..block.Bytes]);
            place.NoteDurable();
        }
        catch (StorageIoException failure) when (failure.IsDiskFull)
        {
            // The file system has given the space of the file away. What has arrived of the block is what the segments get now.
            journal.Close(failure);
            place.Leave();
            return false;
        }
        catch (Exception failure)
        {
            // It may have arrived. Nobody writes to a shared journal any more of which a block is missing.
            journal.Fail(failure);
            End(failure);
            return true;
        }
        foreach (var write in _taken)
        {
            var failure = FailureOf(write, isTogether: true);
            // After the write, so that a sync which begins in between counts for it, and before the end, after which the segment may be released.
            journal.Note(write.File, place.Use);
            write.End(failure);
        }
        place.Leave();
        return true;
    }

    private SharedBlock Compose(Span<byte> buffer)
    {
        var (directoryBytes, contentBytes) = (0, 0);
        foreach (var write in _taken)
        {
            directoryBytes += SharedBlock.EntryBytesOf(write.Entry);
            contentBytes += write.Entry.Bytes;
        }
        var (at, content) = (SharedBlock.HeaderBytes, SharedBlock.HeaderBytes + directoryBytes);
        foreach (var write in _taken)
        {
            var entry = write.Entry;
            var records = buffer.Slice(content, entry.Bytes);
            write.Pack(records);
            at += SharedBlock.WriteEntry(buffer[at..], entry with { Checksum = Crc32C.Of(records) });
            content += entry.Bytes;
        }
        return default(SharedBlock) with
        {
            DirectoryBytes = directoryBytes,
            ContentBytes = contentBytes,
            DirectoryChecksum = Crc32C.Of(buffer.Slice(SharedBlock.HeaderBytes, directoryBytes)),
        };
    }

    private static Exception? FailureOf(SharedWrite write, bool isTogether)
    {
        try
        {
            if (isTogether)
                write.WriteCached();
            else
                write.WriteDurable();
            return null;
        }
        catch (Exception failure)
        {
            return failure;
        }
    }
}
