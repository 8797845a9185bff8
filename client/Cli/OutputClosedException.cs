namespace KvCluster.Cli;

/// <summary>Standard output takes no more: its reader is gone, or its disk is full.</summary>
internal sealed class OutputClosedException(IOException cause) : IOException($"standard output: {cause.Message}", cause);
