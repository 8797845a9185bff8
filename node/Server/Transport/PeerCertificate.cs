using Grpc.Core;
using KvCluster.Tls;

namespace KvCluster.Node.Transport;

/// <summary>
/// Whether a caller is the node that it says it is, by the names in its certificate. What a node connects to is checked by <see cref="TlsConnector"/>.
/// </summary>
internal static class PeerCertificate
{
    /// <summary>Requires that a caller is the node that it says it is. Without credentials whoever reaches the port is trusted.</summary>
    /// <param name="node">The node.</param>
    /// <param name="names">The names in the caller's certificate.</param>
    /// <param name="cluster">The cluster's name.</param>
    /// <param name="credentials">This node's; null if nodes have none.</param>
    /// <exception cref="RpcException">The certificate does not name the node.</exception>
    public static void RequireNode(NodeId node, IReadOnlyCollection<string> names, string cluster, CredentialFiles? credentials)
    {
        if (credentials is not null && NodeNames.OfNode(node.Value, cluster) is var name && !NodeNames.Cover(names, name))
            throw new RpcException(
                new Status(StatusCode.PermissionDenied, $"The caller's certificate does not name {name}; it names {string.Join(", ", names)}."));
    }
}
