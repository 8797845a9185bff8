using Grpc.Core;
using KvCluster.V1;

namespace KvCluster.Client.Transport;

/// <summary>Opens the streams of scans. There are two implementations: over gRPC, and that of tests in their own time. Thread-safe.</summary>
internal interface IScanSource
{
    /// <summary>Opens a stream at a node or router. Whoever gets it disposes of it. The request is changed when the stream has ended.</summary>
    AsyncServerStreamingCall<StreamMessage<ScanPage>> Scan(string address, ScanRequest request, CancellationToken cancellationToken);
}
