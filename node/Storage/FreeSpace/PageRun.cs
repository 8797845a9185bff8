namespace KvCluster.Storage.Pages;

/// <summary>Neighbouring pages of the file.</summary>
/// <param name="First">Number of the first page.</param>
/// <param name="Count">How many.</param>
internal readonly record struct PageRun(long First, long Count);
