namespace KvCluster.Local;

/// <summary>What the command line asks for, checked.</summary>
/// <param name="Folder">The data folder, absolute.</param>
/// <param name="Nodes">How many nodes; null: as the folder has, or 3.</param>
/// <param name="SplitKeys">Where shards begin beside the first, in order; null: as the folder has, or one shard.</param>
/// <param name="Port">The router's port; node N listens on the N-th after it, the coordinator on the ninth.</param>
/// <param name="Processes">Nodes and router as processes of their own.</param>
/// <param name="Sample">Load the shipped sample once the cluster serves.</param>
internal sealed record LocalOptions(string Folder, int? Nodes, IReadOnlyList<string>? SplitKeys, int Port, bool Processes, bool Sample)
{
    /// <summary>Nodes of a new cluster, and replicas of each shard where there are as many nodes.</summary>
    public const int NodesDefault = 3;

    /// <summary>The ports from the router's to the coordinator's leave room for so many.</summary>
    public const int NodesMax = 8;

    public const int ShardsMax = 64;
    public const int PortDefault = 7400;
    public const int CoordinatorPortOffset = 9;

    public string RouterAddress => AddressOf(0);

    public string CoordinatorAddress => AddressOf(CoordinatorPortOffset);

    public string NodeAddress(int node) => AddressOf(node);

    private string AddressOf(int offset) => $"http://127.0.0.1:{Port + offset}";
}
