using System.Collections.Concurrent;
using Google.Protobuf;
using Grpc.Core;
using Grpc.Core.Interceptors;
using Grpc.Net.Client;
using KvCluster.Tls;
using KvCluster.Wire;

namespace KvCluster.Client.Transport;

/// <summary>
/// The gRPC channels to each address for calls that do not use the Exchange stream. Watches, which stay open, and scans have channels of their own, so that
/// neither wait for the other's streams. Thread-safe.
/// </summary>
internal sealed class NodeChannels(TlsConnector connector, ExpectedCluster cluster) : IDisposable, IScanSource, IWatchSource
{
    /// <summary>Eight connections at a node.</summary>
    public const int WatchesMax = 8_192;

    /// <summary>Each holds a snapshot and a page at the node, whose memory has room for some hundred.</summary>
    public const int ScansMax = 1_024;

    private static readonly Method<V1.ScanRequest, StreamMessage<V1.ScanPage>> ScanMethod = StreamOf<V1.ScanRequest, V1.ScanPage>("Scan");
    private static readonly Method<V1.WatchRequest, StreamMessage<V1.WatchResponse>> WatchMethod = StreamOf<V1.WatchRequest, V1.WatchResponse>("Watch");

    private readonly ConcurrentDictionary<(string Address, Use Use), (GrpcChannel Channel, CallInvoker Calls)> _channels = new();

    /// <summary>Returns the header of requests to an address by which the program authorizes itself; null: none has it.</summary>
    public Func<Uri, CancellationToken, ValueTask<string?>>? Authorization { get; init; }

    private volatile bool _closed;

    private enum Use
    {
        Operators,
        Scans,
        Watches,
    }

    /// <summary>Makes operators' calls to an address. As those of the other channels they name the cluster that they are meant for.</summary>
    public CallInvoker To(string address) => To(address, Use.Operators);

    /// <inheritdoc/>
    public AsyncServerStreamingCall<StreamMessage<V1.ScanPage>> Scan(string address, V1.ScanRequest request, CancellationToken cancellationToken) =>
        To(address, Use.Scans).AsyncServerStreamingCall(ScanMethod, null, new CallOptions(cancellationToken: cancellationToken), request);

    /// <inheritdoc/>
    public AsyncServerStreamingCall<StreamMessage<V1.WatchResponse>> Watch(string address, V1.WatchRequest request, CancellationToken cancellationToken) =>
        To(address, Use.Watches).AsyncServerStreamingCall(WatchMethod, null, new CallOptions(cancellationToken: cancellationToken), request);

    public void Dispose()
    {
        _closed = true;
        foreach (var (channel, _) in _channels.Values)
            channel.Dispose();
    }

    private static Method<TRequest, StreamMessage<TResponse>> StreamOf<TRequest, TResponse>(string name)
        where TRequest : class, IMessage
        where TResponse : class, IMessage<TResponse>, new()
    {
        var requests = new Marshaller<TRequest>(
            static (request, context) => context.Complete(request.ToByteArray()), static _ => throw new NotSupportedException());
        return new Method<TRequest, StreamMessage<TResponse>>(
            MethodType.ServerStreaming, EncodedKvService.ServiceName, name, requests, StreamMessage<TResponse>.Marshaller);
    }

    /// <exception cref="ObjectDisposedException">The client is closed.</exception>
    private CallInvoker To(string address, Use use) =>
        _closed ? throw new ObjectDisposedException("KvCluster.Client.KvClient") : _channels.GetOrAdd((address, use), Open).Calls;

    private (GrpcChannel Channel, CallInvoker Calls) Open((string Address, Use Use) to)
    {
        var handler = new LargeMessageHandler(NodeHandler.Create(connector.ConnectAsync, NodeHandler.ConnectTimeMax, Authorization));
        var options = new GrpcChannelOptions { HttpHandler = handler, DisposeHttpClient = true, MaxReceiveMessageSize = null };
        var channel = GrpcChannel.ForAddress(to.Address, options);
        var calls = channel.Calls().Intercept(cluster, new UnsupportedCalls(to.Address));
        return (channel, to.Use switch
        {
            Use.Scans => calls.Intercept(LargeMessages.Instance, new StreamPlaces("scans", ScansMax)),
            Use.Watches => calls.Intercept(LargeMessages.Instance, new StreamPlaces("watches", WatchesMax)),
            _ => calls,
        });
    }
}
