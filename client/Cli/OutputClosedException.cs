namespace KvCluster.Cli;

/// <summary>Standard output cannot be written: its reader is gone, or the disk is full.</summary>
internal sealed class OutputClosedException(IOException cause) : IOException($"standard output: {cause.Message}", cause);
