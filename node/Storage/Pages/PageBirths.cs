namespace KvCluster.Storage.Pages;

/// <summary>
/// For each page of the file, from when on its content may be reached: which checkpoint since the open placed it. In memory only. Used like the
/// <see cref="FreeMap"/> that owns it.
/// </summary>
/// <param name="chunkPages">Pages whose checkpoints are stored together.</param>
internal sealed class PageBirths(int chunkPages)
{
    /// <summary>How many checkpoints are remembered for the pages they placed. A page placed by an earlier one counts as old as the file.</summary>
    private const int CheckpointsKept = 4096;

    /// <summary>For each checkpoint since the open: from when on its pages may be reached.</summary>
    private readonly PageBirth[] _bornBy = new PageBirth[CheckpointsKept];

    /// <summary>
    /// For each page, the checkpoint since the open that placed it; 0 for none. One array per chunk, allocated when a checkpoint takes the first of its
    /// pages: 4 bytes for each page of 8,192 bytes.
    /// </summary>
    private uint[]?[] _placedBy = [];
    private uint _checkpoint;

    /// <summary>Makes space for this many pages.</summary>
    public void Reserve(long pages)
    {
        var chunks = (int)((pages + chunkPages - 1) / chunkPages);
        if (_placedBy.Length < chunks)
            Array.Resize(ref _placedBy, chunks);
    }

    /// <summary>The point from which the content of a page may be reachable.</summary>
    public PageBirth Of(long page)
    {
        var placed = _placedBy[page / chunkPages]?[page % chunkPages] ?? 0;
        return placed == 0 || _checkpoint - placed >= CheckpointsKept ? default : _bornBy[placed % CheckpointsKept];
    }

    /// <summary>Begins a checkpoint.</summary>
    /// <param name="born">The point from which the pages that it places may be reachable.</param>
    public void Begin(PageBirth born) => _bornBy[++_checkpoint % CheckpointsKept] = born;

    /// <summary>Notes that the checkpoint placed pages.</summary>
    public void Place(PageRun run)
    {
        for (var page = run.First; page < run.First + run.Count; page++)
            (_placedBy[page / chunkPages] ??= new uint[chunkPages])[page % chunkPages] = _checkpoint;
    }
}

/// <summary>The point from which the content of a page of the file may be reachable. All zero: as old as the file.</summary>
/// <param name="Batch">The first batch whose root may reach it, or an earlier one.</param>
/// <param name="Revision">The revision of the checkpoint that placed it, or of an earlier one.</param>
internal readonly record struct PageBirth(ulong Batch, ulong Revision);
