namespace KvCluster.Cli.Files;

/// <summary>How a line of the file compares with the cluster's answer.</summary>
internal enum Comparison
{
    Equal,
    Missing,
    Different,
}
