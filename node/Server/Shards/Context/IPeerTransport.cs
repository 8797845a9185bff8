using KvCluster.Internal.V1;

namespace KvCluster.Node.Shards.Context;

/// <summary>Carries frames to other nodes. Two implementations: gRPC streams, and the simulator's network.</summary>
internal interface IPeerTransport
{
    /// <summary>
    /// Queues a frame for a node and returns at once. The frame is dropped when the stream is down or its queue is full; the
    /// protocol repeats what matters. Frames of one shard to one node keep their order. Callable from any thread. The frame must
    /// not be modified afterwards.
    /// </summary>
    void Send(NodeId node, Frame frame);
}
