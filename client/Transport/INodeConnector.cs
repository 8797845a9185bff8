using KvCluster.Client.Routing;

namespace KvCluster.Client.Transport;

/// <summary>The network as the routing of calls sees it. Thread-safe.</summary>
internal interface INodeConnector : IShardMapSource
{
    /// <summary>A connection, which is opened with its first call and again whenever it broke.</summary>
    INodeConnection Connect(string address);
}
