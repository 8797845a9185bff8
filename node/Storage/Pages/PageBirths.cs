namespace KvCluster.Storage.Pages;

/// <summary>
/// For each page of the file, from when on its content may be reached: which checkpoint since the open placed it. In memory only. Used like the
/// <see cref="FreeMap"/> that owns it. A node has hundreds of small stores, for which little is allocated.
/// </summary>
internal sealed class PageBirths
{
    /// <summary>How many checkpoints are remembered for the pages they placed. A page placed by an earlier one counts as old as the file.</summary>
    private const int CheckpointsKept = 4096;

    /// <summary>There is space for so many at first, and then for twice as many each time.</summary>
    private const int CheckpointsFirst = 32;

    /// <summary>Pages whose checkpoints are stored together: those of 8 MiB of the file.</summary>
    private const int ChunkPages = 1_024;

    /// <summary>For each checkpoint since the open: from when on its pages may be reached.</summary>
    private PageBirth[] _bornBy = new PageBirth[CheckpointsFirst];

    /// <summary>
    /// For each page, the checkpoint since the open that placed it; 0 for none. One array per chunk, allocated when a checkpoint takes the first of its
    /// pages: 4 bytes for each page of 8,192 bytes.
    /// </summary>
    private uint[]?[] _placedBy = [];
    private uint _checkpoint;

    /// <summary>Makes space for this many pages.</summary>
    public void Reserve(long pages)
    {
        var chunks = (int)((pages + ChunkPages - 1) / ChunkPages);
        // A large file grows often, each time by little.
        if (_placedBy.Length < chunks)
            Array.Resize(ref _placedBy, chunks + (chunks / 8));
    }

    /// <summary>The point from which the content of a page may be reachable.</summary>
    public PageBirth Of(long page)
    {
        var placed = _placedBy[page / ChunkPages]?[page % ChunkPages] ?? 0;
        return placed == 0 || _checkpoint - placed >= CheckpointsKept ? default : _bornBy[placed % CheckpointsKept];
    }

    /// <summary>Begins a checkpoint.</summary>
    /// <param name="born">The point from which the pages that it places may be reachable.</param>
    public void Begin(PageBirth born)
    {
        var place = (int)(++_checkpoint % CheckpointsKept);
        // Places are taken one after the other.
        if (place == _bornBy.Length)
            Array.Resize(ref _bornBy, 2 * place);
        _bornBy[place] = born;
    }

    /// <summary>Notes that the checkpoint placed pages.</summary>
    public void Place(PageRun run)
    {
        for (var page = run.First; page < run.First + run.Count; page++)
            (_placedBy[page / ChunkPages] ??= new uint[ChunkPages])[page % ChunkPages] = _checkpoint;
    }
}

/// <summary>The point from which the content of a page of the file may be reachable. All zero: as old as the file.</summary>
/// <param name="Batch">The first batch whose root may reach it, or an earlier one.</param>
/// <param name="Revision">The revision of the checkpoint that placed it, or of an earlier one.</param>
internal readonly record struct PageBirth(ulong Batch, ulong Revision);
