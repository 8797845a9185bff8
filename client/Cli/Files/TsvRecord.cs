namespace KvCluster.Cli.Files;

/// <summary>One line of a TSV file. Its memory belongs to a chunk that is never written again, so it stays valid.</summary>
/// <param name="Line">The line's number, from 1.</param>
/// <param name="Key">The bytes before the first tab.</param>
/// <param name="Value">The bytes after the first tab, up to the end of the line.</param>
internal readonly record struct TsvRecord(long Line, ReadOnlyMemory<byte> Key, ReadOnlyMemory<byte> Value);
