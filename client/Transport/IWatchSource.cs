using Grpc.Core;
using KvCluster.V1;

namespace KvCluster.Client.Transport;

/// <summary>Opens the streams of watches. There are two implementations: over gRPC, and the simulation's. Thread-safe.</summary>
internal interface IWatchSource
{
    /// <summary>Opens a stream at a node or router. Whoever gets it disposes of it.</summary>
    AsyncServerStreamingCall<StreamMessage<WatchResponse>> Watch(string address, WatchRequest request, CancellationToken cancellationToken);
}
