using Google.Protobuf;
using Grpc.Core;
using KvCluster.Internal.V1;

namespace KvCluster.Node.Transport;

/// <summary>The Replication service: streams opened by nodes with greater ids.</summary>
internal sealed class PeerService(PeerTransport transport) : Internal.V1.Replication.ReplicationBase
{
    public override async Task Connect(
        IAsyncStreamReader<PeerMessage> requestStream, IServerStreamWriter<PeerMessage> responseStream, ServerCallContext context)
    {
        try
        {
            await transport.AcceptAsync(requestStream, responseStream, NamesOf(context), context.CancellationToken).ConfigureAwait(false);
        }
        catch (OperationCanceledException) when (!context.CancellationToken.IsCancellationRequested)
        {
            throw new RpcException(new Status(StatusCode.Unavailable, "The node is stopping, or a newer stream replaced this one."));
        }
        catch (Exception failure) when (failure is InvalidProtocolBufferException or RpcException { Status.DebugException: InvalidProtocolBufferException })
        {
            // gRPC would report an error of this node.
            throw new RpcException(new Status(StatusCode.InvalidArgument, "The data received is not an encoded PeerMessage, and the stream was ended. "
                + "The frames before it were accepted. Open a new stream."));
        }
    }

    /// <summary>The names in a caller's certificate; none without TLS.</summary>
    public static IReadOnlyCollection<string> NamesOf(ServerCallContext context) =>
        [.. context.AuthContext.FindPropertiesByName("x509_subject_alternative_name").Select(name => name.Value)];
}
