using System.Runtime.CompilerServices;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Client.Transport;
using KvCluster.V1;

namespace KvCluster.Tests.Client.Hostile;

/// <summary>The network of one client: its connections to the nodes of a <see cref="HostileCluster"/>, and the streams at them.</summary>
internal sealed class HostileLinks(HostileCluster cluster) : INodeConnector, IScanSource, IWatchSource
{
    private readonly List<HostileConnection> _connections = [];
    private readonly List<OpenStream> _streams = [];

    /// <summary>The connections that the client has not closed.</summary>
    public int Open => _connections.Count(static connection => !connection.IsClosed);

    public INodeConnection Connect(string address)
    {
        var connection = new HostileConnection(cluster, cluster.NodeAt(address));
        _connections.Add(connection);
        return connection;
    }

    public async IAsyncEnumerable<V1.ShardMap> WatchMap(string address, [EnumeratorCancellation] CancellationToken cancellationToken)
    {
        var node = cluster.NodeAt(address);
        var stream = new HostileStream<V1.ShardMap>();
        var open = new OpenStream(node, stream.End) { Tell = () => Tell(node, stream) };
        _streams.Add(open);
        cluster.Clock.After(1 + cluster.Random.Next(5), open.Tell);
        try
        {
            using (cancellationToken.UnsafeRegister(static state => ((OpenStream)state!).End(Cancelled()), open))
            {
                while (await stream.MoveNext(cancellationToken))
                    yield return stream.Current;
            }
        }
        finally
        {
            _streams.Remove(open);
        }
    }

    public AsyncServerStreamingCall<StreamMessage<ScanPage>> Scan(string address, ScanRequest request, CancellationToken cancellationToken)
    {
        // The time that the scan may still take begins anew with each page that it reads.
        var operation = HostileOperation.Present;
        var stream = new HostileStream<StreamMessage<ScanPage>> { Read = () => operation?.AllowTime() };
        var node = cluster.NodeAt(address);
        // A copy, because the walk changes its request.
        new HostileScan(cluster, node, request.Clone(), stream).Begin();
        return Opened(node, stream, cancellationToken);
    }

    public AsyncServerStreamingCall<StreamMessage<WatchResponse>> Watch(string address, WatchRequest request, CancellationToken cancellationToken)
    {
        var stream = new HostileStream<StreamMessage<WatchResponse>>();
        var node = cluster.NodeAt(address);
        new HostileWatch(cluster, node, request.Clone(), stream).Begin();
        return Opened(node, stream, cancellationToken);
    }

    /// <summary>Whatever leads to a node breaks.</summary>
    public void Break(HostileNode node, string why)
    {
        foreach (var connection in _connections.Where(connection => connection.Node == node).ToArray())
            connection.Break(why);
        foreach (var stream in _streams.Where(stream => stream.Node == node).ToArray())
            stream.End(new RpcException(new Status(StatusCode.Unavailable, why)));
    }

    /// <summary>A node knows something new of the map.</summary>
    public void MapChanged(HostileNode node)
    {
        foreach (var stream in _streams.Where(stream => stream.Node == node).ToArray())
            stream.Tell();
    }

    private static RpcException Cancelled() => new(new Status(StatusCode.Cancelled, "the call was cancelled"));

    private void Tell(HostileNode node, HostileStream<V1.ShardMap> stream)
    {
        if (node.IsCut)
            return;
        if (node.IsDown)
            stream.End(new RpcException(new Status(StatusCode.Unavailable, "connection refused")));
        else if (cluster.DelayOf(node.Maps) is { } delayMs)
            cluster.Clock.After(delayMs, () => stream.Arrive(cluster.MapOf(node)));
    }

    private AsyncServerStreamingCall<StreamMessage<T>> Opened<T>(HostileNode node, HostileStream<StreamMessage<T>> stream, CancellationToken cancellationToken)
        where T : class, IMessage<T>, new()
    {
        var open = new OpenStream(node, stream.End);
        _streams.Add(open);
        var cancelled = cancellationToken.UnsafeRegister(static state => ((OpenStream)state!).End(Cancelled()), open);
        return new AsyncServerStreamingCall<StreamMessage<T>>(
            stream, Task.FromResult(new Metadata()), static () => Status.DefaultSuccess, static () => [], () =>
            {
                cancelled.Dispose();
                open.End(Cancelled());
                _streams.Remove(open);
            });
    }

    private sealed record OpenStream(HostileNode Node, Action<RpcException?> End)
    {
        public Action Tell { get; init; } = static () => { };
    }
}
