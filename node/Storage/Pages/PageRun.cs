using KvCluster.Storage.Files;

namespace KvCluster.Storage.Pages;

/// <summary>Consecutive pages of the file.</summary>
/// <param name="First">Number of the first page.</param>
/// <param name="Count">Number of pages.</param>
internal readonly record struct PageRun(long First, long Count);

/// <summary>Grows the file to the wanted length, or at least to the needed one. Returns its length in pages.</summary>
/// <exception cref="StorageIoException">The disk has no space for what is needed.</exception>
internal delegate long FileGrowth(long pagesNeeded, long pagesWanted);
