using KvCluster.Client.Routing;

namespace KvCluster.Client.Transport;

/// <summary>The network as used by the routing of calls. Thread-safe.</summary>
internal interface INodeConnector : IShardMapSource
{
    /// <summary>Returns a connection, which is opened with its first call and again after it broke.</summary>
    INodeConnection Connect(string address);
}
