using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.DataFile;

/// <summary>
/// One checkpoint in progress: frozen on the writer, written on the checkpoint executor, finished on the writer. A failed write leaves the file's newest
/// state unchanged.
/// </summary>
/// <remarks>
/// The scratch pages of the frozen root are those in use with its batch number or a lower one. Nobody changes them, and the writer keeps them all until
/// the finish. Nobody else reads the location, checksum and summary stored in them here before that.
/// </remarks>
internal sealed unsafe class Checkpoint
{
    /// <summary>The checkpoint before it is given up if it alone has more pages than this part of those that this one reaches.</summary>
    private const int OlderPartMax = 8;

    /// <summary>A delta's places in the lists of pages, of folded deltas, and of what was left since.</summary>
    private const int ListBytesPerDelta = 3 * sizeof(long);

    /// <summary>Pages ahead of the one that is written whose bases the system is asked to read: as many as a fast disk reads at once.</summary>
    private const int PagesAhead = 128;

    private readonly PageStore _store;
    private readonly FileGrowth _grow;

    /// <summary>The first batch whose root may reach pages that this checkpoint places.</summary>
    private readonly ulong _firstBatchToPlace;
    private readonly List<nint> _scratch = [];
    private PageWriter? _writer;
    private MetaPage? _metaStarted;
    private bool _replacesOlder;
    private int _scratchWritten;
    private int _scratchAsked;
    private long _listBytes;

    internal Checkpoint(PageStore store, StoreRoot root, List<PageRun> left, ulong firstBatchToPlace)
    {
        _store = store;
        _grow = store.FileSpace.Grow;
        Root = root;
        Left = left;
        _firstBatchToPlace = firstBatchToPlace;
        Folded = new CheckpointDeltas(_scratch);
    }

    /// <summary>The last change in it.</summary>
    public Etag Etag => Root.Etag;

    /// <summary>The frozen state.</summary>
    internal StoreRoot Root { get; }

    /// <summary>Pages that the previous checkpoint reaches and this one does not. The free map's own pages are added later.</summary>
    internal List<PageRun> Left { get; }

    /// <summary>
    /// Scratch pages of this checkpoint that batches published since then have retired, which is noted in each (<see cref="Page.LeftBy"/>). Writer only.
    /// </summary>
    internal PageList LeftSince { get; } = new();

    /// <summary>
    /// Pages of the file that such batches have dropped the last delta from (<see cref="SealedBatch.DroppedBases"/>). Writer only.
    /// </summary>
    internal List<long> LeftBases { get; } = [];

    /// <summary>
    /// The frozen root's deltas, whose bases this checkpoint does not reach: it folds both into new pages. Checkpoint executor; after the write, the writer.
    /// </summary>
    internal CheckpointDeltas Folded { get; }

    /// <summary>Bytes of memory that its lists take for the deltas. Any thread.</summary>
    internal long ListBytes => Volatile.Read(ref _listBytes);

    /// <summary>Bytes of memory of the frozen root's pages, known when the first of them is written.</summary>
    internal long ScratchBytes { get; private set; }

    /// <summary>What the checkpoint covers.</summary>
    internal CheckpointPosition CheckpointPosition { get; private set; }

    /// <summary>Whether the checkpoint was returned to its owner and uses the free map. Before that it is only frozen.</summary>
    internal bool IsBegun { get; private set; }

    /// <summary>The meta page it wrote.</summary>
    internal MetaPage? Meta { get; private set; }

    /// <summary>
    /// The same with the next revision, in the place of the meta page of the checkpoint before it, whose pages are free then. Null if that one stays.
    /// </summary>
    internal MetaPage? MetaAgain { get; private set; }

    /// <summary>The pages that it reaches. Computed on this executor, because a large file has many runs and the writer has no time for them.</summary>
    internal List<PageRun> UsedRuns { get; private set; } = [];

    /// <summary>The pages that the previous checkpoint reaches and this one does not.</summary>
    internal List<PageRun> PendingRuns { get; private set; } = [];

    /// <summary>Their bytes.</summary>
    internal long PendingBytes { get; private set; }

    /// <summary>The frozen root's scratch pages, children first.</summary>
    internal IReadOnlyList<nint> Scratch => _scratch;

    /// <summary>Whether a retry cannot conflict with the meta page of an earlier attempt.</summary>
    internal bool MayBeAbandoned => _metaStarted is null;

    /// <summary>Bytes of tree pages written so far. Checkpoint executor; after the finish, the writer.</summary>
    public long PageBytes { get; private set; }

    /// <summary>How it was written. Known when it is.</summary>
    public WriteCounts Counts { get; private set; }

    internal void Begin(CheckpointPosition coverage) => (CheckpointPosition, IsBegun) = (coverage, true);

    /// <summary>The part of its pages that is written, from 0 to 1. Checkpoint executor.</summary>
    public double Progress => _scratch.Count == 0 ? 1 : (double)_scratchWritten / _scratch.Count;

    /// <summary>Takes all steps at once.</summary>
    /// <inheritdoc cref="WriteStep"/>
    public void Write()
    {
        while (!WriteStep())
        {
        }
    }

    /// <summary>
    /// Writes pages, about the bytes of one write. With the last of them it syncs, overwrites the older meta page, syncs, and returns true. If it leaves much
    /// of the file, it overwrites the other meta page, too, and syncs again. Checkpoint executor; called until it returns true or throws.
    /// </summary>
    /// <exception cref="StorageIoException">
    /// The disk failed or is full. On a full disk the checkpoint is abandoned, or, if it may not be, the step is repeated when there is space.
    /// </exception>
    public bool WriteStep()
    {
        if (_metaStarted is { } started)
        {
            WriteMeta(started);
            return true;
        }
        try
        {
            _writer ??= Prepare();
            for (var bytes = 0L; _scratchWritten < _scratch.Count; _scratchWritten++)
            {
                // A step ends at the end of an aligned write. Where pages are scattered, none may come, so it also ends after one and a half writes.
                if (bytes >= _store.Options.WriteBytes * 3L / 2 || (bytes >= _store.Options.WriteBytes / 2 && _writer.IsAtBoundary))
                {
                    _writer.BeginWriteOut();
                    return false;
                }
                ReadBasesAhead();
                var written = WritePage(_writer, (byte*)_scratch[_scratchWritten]);
                bytes += written;
                PageBytes += written;
            }
            Complete(_writer);
            _writer.Dispose();
            return true;
        }
        catch (Exception failure)
        {
            _writer?.Dispose();
            // The checkpoint will be abandoned. The map is restored here, because that of a large file would take the writer too long.
            if (failure is StorageIoException { IsDiskFull: true } && MayBeAbandoned)
                _store.Free.Restore();
            throw;
        }
    }

    private PageWriter Prepare()
    {
        _store.Meta.Settle();
        long pages = 0;
        foreach (var tree in Root.Trees)
            Collect(tree.Link.Reference, ref pages);
        Folded.Sort();
        Volatile.Write(ref _listBytes, (long)Folded.Count * ListBytesPerDelta);
        _store.FileSpace.Prepare(_store.Free);
        List<PageRun> left = Folded.Count == 0 ? Left : [.. Left, .. Folded.Bases()];
        _store.Free.BeginNext(left, pages + 2, new PageBirth(_firstBatchToPlace, _store.Meta.Newest.Revision + 1));
        return new PageWriter(_store.File, _store.Space, _store.Options.WriteBytes);
    }

    private void Complete(PageWriter writer)
    {
        var map = _store.Free;
        map.CutEnd();
        var directory = map.WriteNext(writer, _grow, Root.Etag);
        writer.BeginWriteOut();
        Counts = writer.Counts;
        _store.File.Sync();
        var meta = new MetaPage
        {
            Version = Math.Max(_store.Options.FileVersionMin, _store.Meta.Newest.Version),
            Revision = _store.Meta.Newest.Revision + 1,
            Identity = _store.Meta.Newest.Identity,
            FilePages = map.FilePages,
            FreeDirectory = directory.Reference,
            FreeDirectoryChecksum = directory.Checksum,
            CheckpointPosition = CheckpointPosition,
            ShardTime = Root.ShardTime,
            WallTime = Root.WallTime,
            Trees = [.. Root.Trees.Select(Placed)],
        };
        (UsedRuns, PendingRuns, PendingBytes) = (map.UsedRuns(), map.PendingRuns(), map.PendingPages * Page.Bytes);
        // Folding deltas leaves most leaves. Together with the next checkpoint there would be three times the data in the file.
        _replacesOlder = Folded.Count > 0 && map.PendingPages > Math.Max(_store.Options.OlderBytesMax / Page.Bytes, map.UsedPages / OlderPartMax);
        _metaStarted = meta;
        WriteMeta(meta);
    }

    private void WriteMeta(MetaPage meta)
    {
        // Where the second write finds the disk full, only that is repeated: the other meta page is the only one that counts then.
        if (Meta is null)
            _store.Meta.WriteDurable(meta);
        Meta = meta;
        if (!_replacesOlder)
            return;
        var again = meta with { Revision = meta.Revision + 1 };
        _store.Meta.WriteDurable(again);
        _store.Free.FreePending();
        MetaAgain = again;
    }

    /// <summary>The root of a tree with its location in the file.</summary>
    private TreeRoot Placed(TreeRoot tree)
    {
        var top = tree.Link.Reference;
        return top.IsScratch ? tree.ToPlaced(_store.Space.Locate(top)) : tree;
    }

    private void Collect(PageRef reference, ref long pages)
    {
        if (!reference.IsScratch)
            return;
        var page = _store.Space.Locate(reference);
        for (var i = 0; TreePage.HasReferences(page) && i < Page.Count(page); i++)
        {
            if (TreePage.Reference(page, i) is var link && link != null)
                Collect(link->Reference, ref pages);
        }
        pages += ScratchPool.PagesOf(page);
        ScratchBytes += ScratchPool.BytesOf(page);
        if (reference.IsDelta)
            Folded.AddNext(page);
        _scratch.Add((nint)page);
    }

    /// <summary>Begins to read bases that are not in memory. One after the other, each would be waited for.</summary>
    private void ReadBasesAhead()
    {
        for (; _scratchAsked < _scratch.Count && _scratchAsked < _scratchWritten + PagesAhead; _scratchAsked++)
        {
            var page = (byte*)_scratch[_scratchAsked];
            if (Page.Type(page) == PageType.Delta)
                _store.Space.TryBeginRead(DeltaPage.Base(page).Reference.Number, 1);
        }
    }

    /// <summary>Writes a page or run and returns its bytes in the file.</summary>
    private long WritePage(PageWriter writer, byte* page)
    {
        if (Page.Type(page) == PageType.Overflow)
            return WriteRun(writer, page);
        var number = _store.Free.Take(1, _grow);
        var image = writer.Next(number);
        if (Page.Type(page) == PageType.Delta)
            // The base is read by a call, because a sector that has become bad is damage of this replica and no failed write.
            DeltaPage.Fold(image, page, _store.Space.ResolveBaseAgain(page));
        else
            Buffer.MemoryCopy(page, image, Page.Bytes, Page.Bytes);
        PlaceChildren(image);
        Page.Summary(page) = SubtreeSummary.Of(image);
        Complete(image, number);
        Page.Checksum(image) = Page.ComputeChecksum(image, Page.Bytes);
        (Page.Checksum(page), Page.Placed(page)) = (Page.Checksum(image), PageRef.ToFile(number));
        return Page.Bytes;
    }

    private void PlaceChildren(byte* image)
    {
        for (var i = 0; TreePage.HasReferences(image) && i < Page.Count(image); i++)
        {
            if (TreePage.Reference(image, i) is var link && link != null && link->Reference.IsScratch)
                TreePage.StorePlaced(image, link, _store.Space.Locate(link->Reference));
        }
    }

    /// <summary>Sets the header fields to their values in the file.</summary>
    private void Complete(byte* image, long number)
    {
        Page.Number(image) = (ulong)number;
        Page.SetEtag(image, Root.Etag);
        (Page.Appended(image), Page.ScratchIndex(image), Page.Batch(image), Page.Placed(image)) = (0, 0, 0, default);
    }

    private long WriteRun(PageWriter writer, byte* run)
    {
        var pages = OverflowRun.PagesFor(Page.ValueLength(run));
        var number = _store.Free.Take(pages, _grow);
        var header = stackalloc byte[Page.HeaderBytes];
        Buffer.MemoryCopy(run, header, Page.HeaderBytes, Page.HeaderBytes);
        Complete(header, number);
        var body = new ReadOnlySpan<byte>(run + Page.HeaderBytes, (pages * Page.Bytes) - Page.HeaderBytes);
        Page.Checksum(header) = Crc32C.Of(new ReadOnlySpan<byte>(header + 4, Page.HeaderBytes - 4), body);
        for (var i = 0; i < pages; i++)
        {
            var image = writer.Next(number + i);
            Buffer.MemoryCopy(run + ((long)i * Page.Bytes), image, Page.Bytes, Page.Bytes);
            if (i == 0)
                Buffer.MemoryCopy(header, image, Page.HeaderBytes, Page.HeaderBytes);
        }
        (Page.Checksum(run), Page.Placed(run)) = (Page.Checksum(header), PageRef.ToFile(number));
        return (long)pages * Page.Bytes;
    }
}
