using System.Collections.Concurrent;

namespace KvCluster.Node.Telemetry;

/// <summary>Node ids as attribute values, boxed once each, because there are few nodes and many measurements.</summary>
internal static class BoxedNode
{
    private static readonly ConcurrentDictionary<NodeId, object> Known = new();

    public static object Of(NodeId node) => Known.TryGetValue(node, out var boxed) ? boxed : Known.GetOrAdd(node, static id => id.Value);
}
