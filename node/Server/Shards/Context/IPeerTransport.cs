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

    /// <summary>
    /// The same for a frame that may wait until <see cref="SendLeft"/>, to share a message with others. It is sent earlier with any other frame.
    /// </summary>
    void Leave(NodeId node, Frame frame) => Send(node, frame);

    /// <summary>Sends what was left for any node. Callable from any thread.</summary>
    void SendLeft()
    {
    }
}
