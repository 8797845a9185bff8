namespace KvCluster.Cli.Files;

/// <summary>One compared line.</summary>
internal readonly record struct ComparedRecord(TsvRecord Record, Comparison Comparison);
