using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Journal;

/// <summary>
/// Reads the committed records of a store in order, for watches and whatever else follows a shard: the newest from memory, older ones from the segments, on
/// an executor of their own, so that neither the writer nor a checkpoint waits for them. Only records that are applied and published here are returned, so
/// none that may still be truncated. Owned by a store; any thread calls it, any number of readers. Nothing is thrown: damage ends the store as it does for
/// followers, and readers are told that it has stopped.
/// </summary>
/// <remarks>
/// Segments may be recycled while they are read. A body is therefore compared with its record, and one that differs is looked for again, on the writer
/// executor.
/// </remarks>
/// <param name="context">The shard's executors and disk.</param>
/// <param name="life">Nothing is read when the store has ended.</param>
/// <param name="pages">Knows what is published.</param>
/// <param name="index">The journal's records.</param>
/// <param name="reader">Reads on the writer executor what could not be read beside it.</param>
/// <param name="directory">The directory of the segments.</param>
internal sealed class CommittedTail(StoreContext context, StoreLifecycle life, PageStore pages, JournalIndex index, JournalReader reader, string directory)
{
    /// <summary>Who still needs the journal.</summary>
    public JournalHolds Holds { get; } = new();

    /// <summary>The last record that a read returns now.</summary>
    public Etag Committed => pages.Roots.PublishedEtag;

    /// <summary>Reads what follows a position.</summary>
    /// <param name="after">The etag of a record or of an operation in one. In that case the page begins with the record that the operation is in.</param>
    /// <param name="bytesMax">The most bytes of bodies, unless the first one alone has more.</param>
    /// <param name="withSnapshot">Whether to open a snapshot, see <see cref="TailPage.Snapshot"/>.</param>
    /// <param name="done">Called once, on the writer executor or the one that reads. Must not block or throw.</param>
    public void Read(Etag after, int bytesMax, bool withSnapshot, Action<TailPage> done) =>
        context.Writer.Post(new WorkAction(() => ReadHere(after, bytesMax, withSnapshot, done)));

    /// <summary>The same for a caller on the writer executor: what is in memory is read at once.</summary>
    /// <inheritdoc cref="Read"/>
    public void ReadHere(Etag after, int bytesMax, bool withSnapshot, Action<TailPage> done)
    {
        var committed = pages.Roots.PublishedEtag;
        var state = life.HasEnded ? TailState.Stopped : StateOf(after, committed);
        if (state != TailState.Read)
        {
            done(Without(state, after));
            return;
        }
        var (first, bytes, isInMemory) = (index.FirstAfter(after), 0L, true);
        var end = first;
        for (; end < index.Count && index[end].Record.Etag <= committed && (end == first || bytes + index[end].Record.BodyBytes <= bytesMax); end++)
        {
            bytes += index[end].Record.BodyBytes;
            isInMemory &= !index[end].Body.IsEmpty;
        }
        var (entries, bodies) = (new JournalEntry[end - first], new ReadOnlyMemory<byte>[end - first]);
        for (var place = 0; place < entries.Length; place++)
            (entries[place], bodies[place]) = (index[first + place], index[first + place].Share());
        var until = entries.Length == 0 ? after : entries[^1].Record.Etag;
        var page = new TailPage(TailState.Read, until, index.Base.Etag, committed, bodies, withSnapshot && until == committed ? TryOpenSnapshot() : null);
        if (isInMemory)
            done(page);
        else
            context.TailReads.Post(new WorkAction(() => ReadSegments(page, entries, bodies, after, done)));
    }

    /// <summary>
    /// Whether there can be records after a position. Changes are numbered without gaps, so an etag between two records is that of an operation of the second
    /// one if it has that one's epoch. Otherwise it was never committed in this history.
    /// </summary>
    private TailState StateOf(Etag after, Etag committed)
    {
        if (after < index.Base.Etag)
            return TailState.Compacted;
        if (after > committed)
            return TailState.Ahead;
        var next = index.FirstAfter(after);
        var before = next == 0 ? index.Base.Etag : index[next - 1].Record.Etag;
        return before == after || (next < index.Count && index[next].Record.Epoch == after.Epoch && after.Change > before.Change) ? TailState.Read
            : TailState.Foreign;
    }

    private ReadSnapshot? TryOpenSnapshot()
    {
        try
        {
            return pages.Roots.OpenSnapshot();
        }
        catch (SnapshotLimitException)
        {
            // The reader goes on without.
            return null;
        }
    }

    /// <summary>Reads the bodies that are not in memory, those behind each other by one call. A segment may be recycled or deleted meanwhile.</summary>
    private void ReadSegments(TailPage page, JournalEntry[] entries, ReadOnlyMemory<byte>[] bodies, Etag after, Action<TailPage> done)
    {
        var read = 0;
        try
        {
            using var segments = new SegmentReader(context.Files, directory);
            while (read < entries.Length)
            {
                if (!bodies[read].IsEmpty)
                {
                    read++;
                    continue;
                }
                var run = SegmentReader.RunLength(entries.AsSpan(read), long.MaxValue);
                var count = run == 1 ? 0 : segments.ReadRun(entries.AsSpan(read, run), bodies.AsSpan(read));
                if (count == 0)
                    (bodies[read], count) = (segments.ReadBody(entries[read]), 1);
                read += count;
            }
            done(page);
            return;
        }
        catch (Exception failure) when (failure is CorruptStoreException or StorageIoException)
        {
            // Recycled meanwhile, unless the disk is at fault, which the writer finds out.
            page.Snapshot?.Dispose();
        }
        if (read > 0)
            done(page with { Until = entries[read - 1].Record.Etag, Bodies = bodies[..read], Snapshot = null });
        else
            context.Writer.Post(new WorkAction(() => ReadFirst(after, done)));
    }

    private void ReadFirst(Etag after, Action<TailPage> done)
    {
        var bodies = new List<ReadOnlyMemory<byte>>();
        var state = life.HasEnded ? TailState.Stopped : StateOf(after, pages.Roots.PublishedEtag);
        if (state == TailState.Read && reader.ReadBodies(after, bytesMax: 0, bodies) < 0)
            state = life.HasEnded ? TailState.Stopped : TailState.Compacted;
        if (state != TailState.Read
            || bodies.Count == 0 || !RecordBody.TryReadHeader(bodies[0].Span, out var record) || record.Etag > pages.Roots.PublishedEtag)
            done(Without(state, after));
        else
            done(new TailPage(TailState.Read, record.Etag, index.Base.Etag, pages.Roots.PublishedEtag, bodies));
    }

    private TailPage Without(TailState state, Etag after) => new(state, after, index.Base.Etag, pages.Roots.PublishedEtag, []);
}
