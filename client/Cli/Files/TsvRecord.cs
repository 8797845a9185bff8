namespace KvCluster.Cli.Files;

/// <summary>One line of a TSV file. The memory is of a chunk that is never written again, so it stays valid.</summary>
/// <param name="Line">Its number, from 1.</param>
/// <param name="Key">What stands before the first tab.</param>
/// <param name="Value">What stands behind it, up to the end of the line.</param>
internal readonly record struct TsvRecord(long Line, ReadOnlyMemory<byte> Key, ReadOnlyMemory<byte> Value);
