using KvCluster.Storage.Pages;

namespace KvCluster.Tests.Storage.Schedules.Stepped;

/// <summary>
/// The engine under a <see cref="Schedule"/> frees pages through these methods, which erase what is free at once. A reader that still reaches it finds nothing
/// there, whether or not it is used again.
/// </summary>
internal static unsafe class FreedPages
{
    /// <summary>Where the pages of the file of the store under test are mapped; null: they are not erased. One run at a time sets it.</summary>
    public static PageSpace? Space { get; set; }

    public static void Return(ScratchPool pool, byte* page)
    {
        var bytes = ScratchPool.PagesOf(page) == 1 ? ScratchPool.BytesOf(page) : 0;
        pool.Return(page);
        // The memory of a run may have gone to the system.
        new Span<byte>(page, (int)bytes).Clear();
    }

    public static void AllowReuse(FreeMap map, PageRun run)
    {
        map.AllowReuse(run);
        for (var page = run.First; Space is { } space && page < run.First + run.Count; page++)
            new Span<byte>(space.Locate(PageRef.ToFile(page)), Page.Bytes).Clear();
    }
}
