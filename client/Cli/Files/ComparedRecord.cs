namespace KvCluster.Cli.Files;

/// <summary>A line of the file, and how it compares with the cluster.</summary>
internal readonly record struct ComparedRecord(TsvRecord Record, Comparison Comparison);
