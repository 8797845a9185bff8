using KvCluster.Storage.Files;

namespace KvCluster.Storage.Pages;

/// <summary>Neighbouring pages of the file.</summary>
/// <param name="First">Number of the first page.</param>
/// <param name="Count">How many.</param>
internal readonly record struct PageRun(long First, long Count);

/// <summary>Grows the file, to the wanted length or at least to the needed one; gives its pages.</summary>
/// <exception cref="StorageIoException">The disk has no room for what is needed.</exception>
internal delegate long FileGrowth(long pagesNeeded, long pagesWanted);
