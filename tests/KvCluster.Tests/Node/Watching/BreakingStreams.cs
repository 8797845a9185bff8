using Grpc.Core;
using KvCluster.Client;
using KvCluster.Client.Runtime;
using KvCluster.Client.Transport;
using KvCluster.Tls;
using KvCluster.V1;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Node.Watching;

/// <summary>
/// The network of a client whose watches break: after each of the first streams has passed so many messages on, a callback runs, and then it fails.
/// </summary>
internal sealed class BreakingStreams : INodeConnector, IWatchSource, IDisposable
{
    private readonly NodeChannels _channels = new(new TlsConnector(files: null), new ExpectedCluster());
    private readonly GrpcConnector _inner = new(new TlsConnector(files: null), 1_000, NullLogger.Instance);
    private int _breaksLeft;

    /// <summary>How many streams break.</summary>
    public int BreaksLeft
    {
        get => Math.Max(0, Volatile.Read(ref _breaksLeft));
        init => _breaksLeft = value;
    }

    /// <summary>After how many messages.</summary>
    public int MessagesMax { get; init; } = 2;

    /// <summary>With what they fail. A watch goes on after the default.</summary>
    public StatusCode Failure { get; init; } = StatusCode.Unavailable;

    /// <summary>With what they fail in place of <see cref="Failure"/>, if it is not null.</summary>
    public RpcException? Refusal { get; init; }

    /// <summary>What happens before the stream fails.</summary>
    public Func<Task> OnBreak { get; init; } = static () => Task.CompletedTask;

    public INodeConnection Connect(string address) => _inner.Connect(address);

    public IAsyncEnumerable<ShardMap> WatchMap(string address, CancellationToken cancellationToken) => _inner.WatchMap(address, cancellationToken);

    public AsyncServerStreamingCall<StreamMessage<WatchResponse>> Watch(string address, WatchRequest request, CancellationToken cancellationToken)
    {
        // A copy, because the walk changes its request.
        var call = _channels.Watch(address, request.Clone(), cancellationToken);
        // The walks of several shards open their streams at the same time.
        if (Interlocked.Decrement(ref _breaksLeft) < 0)
            return call;
        var reader = new Reader(this, call);
        return new AsyncServerStreamingCall<StreamMessage<WatchResponse>>(reader, call.ResponseHeadersAsync, call.GetStatus, call.GetTrailers, call.Dispose);
    }

    public KvClient Client(params string[] endpoints) =>
        new(new KvClientOptions { Endpoints = [.. endpoints], Timeout = Eventually.Limit }, this, ClientRuntime.Machine);

    /// <summary>A client that sends everything to one router.</summary>
    public KvClient GatewayClient(string router) =>
        new(new KvClientOptions { Endpoints = [router], Gateway = true, Timeout = Eventually.Limit }, this, ClientRuntime.Machine);

    public void Dispose() => _channels.Dispose();

    private sealed class Reader(BreakingStreams streams, AsyncServerStreamingCall<StreamMessage<WatchResponse>> call)
        : IAsyncStreamReader<StreamMessage<WatchResponse>>
    {
        private int _passed;

        public StreamMessage<WatchResponse> Current => call.ResponseStream.Current;

        public async Task<bool> MoveNext(CancellationToken cancellationToken)
        {
            if (_passed++ < streams.MessagesMax)
                return await call.ResponseStream.MoveNext(cancellationToken);
            // Its place at the node is given up, and nothing holds the journal any more.
            call.Dispose();
            await streams.OnBreak();
            throw streams.Refusal ?? new RpcException(new Status(streams.Failure, "the stream was broken by the test"));
        }
    }
}
