namespace KvCluster.Cli.Files;

/// <summary>What a file's line and the cluster's answer have in common.</summary>
internal enum Comparison
{
    Equal,
    Missing,
    Different,
}
