// The streams to the other nodes of the cluster. The node with the greater id opens the stream of a pair: this node's loops dial the nodes
// with lower ids, and PeerService accepts the streams of those with greater ids. Every loop's task is kept and awaited.
using System.Collections.Concurrent;
using System.Globalization;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Internal.V1;
using KvCluster.Node.Map;
using KvCluster.Node.Runtime;
using KvCluster.Node.Shards.Context;
using KvCluster.Node.Telemetry;
using KvCluster.Tls;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Transport;

/// <summary>Carries frames between nodes.</summary>
/// <param name="identity">This node.</param>
/// <param name="credentials">With credentials, nodes authenticate each other. If null, connections are in plain text and whoever reaches the port is
/// trusted.</param>
/// <param name="log">Receives the events of the streams.</param>
internal sealed class PeerTransport(NodeIdentity identity, CredentialFiles? credentials, ILogger log) : IPeerTransport, IAsyncDisposable
{
    /// <summary>Largest message that a node accepts: the largest record body (a write of 16 MiB after a full batch), with space to spare.</summary>
    public const int MessageBytesMax = 32 << 20;

    /// <summary>A node that has sent nothing for this long is silent. Two messages in a row that say that it is alive are missing then.</summary>
    private static readonly TimeSpan SilenceMax = TimeSpan.FromMilliseconds(600);

    /// <summary>
    /// After this long without a message the stream is reported as down. If a network connection is cut silently, the side that was dialed keeps it open for a
    /// quarter of an hour.
    /// </summary>
    private static readonly TimeSpan DownAfter = TimeSpan.FromSeconds(3);

    /// <summary>A node that does not answer the hello within this time is dialed again, as one is that falls silent for it later.</summary>
    private static readonly TimeSpan HelloTimeMax = PeerLink.AliveInterval * PeerLink.UnheardMax;

    private static readonly TimeSpan PauseMin = TimeSpan.FromMilliseconds(50);
    private static readonly TimeSpan PauseMax = TimeSpan.FromSeconds(1);

    private readonly ConcurrentDictionary<NodeId, PeerLink> _links = new();
    private readonly CancellationTokenSource _stopping = new();

    private Action<NodeId, Frame> _receive = static (_, _) => { };
    private Action _received = static () => { };
    private Action<NodeId> _silent = static _ => { };
    private ShardDirectory? _map;
    private Task _following = Task.CompletedTask;
    private ITimer? _alive;

    /// <summary>Starts to dial the nodes of the map and to pass on what they send.</summary>
    /// <param name="map">The nodes and their addresses.</param>
    /// <param name="receive">Called with every frame and the node that sent it. Must not wait.</param>
    /// <param name="received">Called after some frames that came together. Must not wait.</param>
    /// <param name="silent">Called with a node whose stream ended, and repeatedly with one that sends nothing. Must not wait.</param>
    /// <param name="timers">Timers that the node's replicas use as well.</param>
    public void Start(ShardDirectory map, Action<NodeId, Frame> receive, Action received, Action<NodeId> silent, TimeProvider timers)
    {
        _map = map;
        Volatile.Write(ref _silent, silent);
        Volatile.Write(ref _received, received);
        Volatile.Write(ref _receive, receive);
        _following = Task.Run(FollowAsync);
        // All links share one timer, and the replicas another one. Each timer of the runtime that is due and set again wakes the timers' thread two or three
        // times, and threads of the pool.
        _alive = timers.CreateTimer(static self => ((PeerTransport)self!).SayAlive(), this, Timeout.InfiniteTimeSpan, Timeout.InfiniteTimeSpan);
        _alive.Change(CommonMoments.Until(PeerLink.AliveInterval), Timeout.InfiniteTimeSpan);
    }

    /// <inheritdoc/>
    public void Send(NodeId node, Frame frame)
    {
        if (_links.TryGetValue(node, out var link))
            link.Send(frame);
    }

    /// <inheritdoc/>
    public void Leave(NodeId node, Frame frame)
    {
        if (_links.TryGetValue(node, out var link))
            link.Leave(frame);
    }

    /// <inheritdoc/>
    public void SendLeft()
    {
        foreach (var (_, link) in _links)
            link.SendLeft();
    }

    /// <summary>Number of the running stream to a node, unique among all streams that this process has had with it; 0 if there is none.</summary>
    public long SessionOf(NodeId node) => _links.TryGetValue(node, out var link) && link.IsUp ? link.Sessions : 0;

    /// <summary>The state of the streams, without nodes that left the cluster. Any thread.</summary>
    public IEnumerable<LinkGauges> ReadLinks() =>
        _links.Where(link => link.Value.IsUp || _map?.Snapshot.Nodes.ContainsKey(link.Key) == true).OrderBy(link => link.Key)
            .Select(link => new LinkGauges(link.Key, link.Value.IsUp && !link.Value.IsSilentFor(DownAfter), link.Value.WaitingBytes, link.Value.Dropped));

    /// <summary>Runs a stream that another node opened, until it ends.</summary>
    /// <param name="incoming">Messages from the other node.</param>
    /// <param name="outgoing">Messages to the other node.</param>
    /// <param name="names">The names in its certificate.</param>
    /// <param name="cancellationToken">Ends the stream.</param>
    /// <exception cref="RpcException">The hello is not valid, or the stream broke.</exception>
    public async Task AcceptAsync(
        IAsyncStreamReader<PeerMessage> incoming, IAsyncStreamWriter<PeerMessage> outgoing, IReadOnlyCollection<string> names,
        CancellationToken cancellationToken)
    {
        if (credentials is not null && names.Count == 0)
            throw new RpcException(new Status(StatusCode.Unauthenticated, "Streams between nodes need a certificate with the name of a node."));
        using var ending = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken, _stopping.Token);
        var node = await ReadHelloAsync(incoming, ending.Token).ConfigureAwait(false);
        RequireNode(node, names);
        if (node.Value <= identity.Node.Value)
            throw new RpcException(
                new Status(StatusCode.FailedPrecondition, $"Node {node} does not open streams to node {identity.Node}; the node with the greater id does."));
        await outgoing.WriteAsync(Hello()).ConfigureAwait(false);
        TransportLog.Connected(log, node, "it opened the stream");
        await RunSessionAsync(node, incoming, outgoing, ending.Token).ConfigureAwait(false);
    }

    /// <inheritdoc cref="PeerCertificate.RequireNode"/>
    public void RequireNode(NodeId node, IReadOnlyCollection<string> names) => PeerCertificate.RequireNode(node, names, identity.Cluster, credentials);

    public async ValueTask DisposeAsync()
    {
        await _stopping.CancelAsync().ConfigureAwait(false);
        await _following.ConfigureAwait(false);
        if (_alive is not null)
            await _alive.DisposeAsync().ConfigureAwait(false);
        _stopping.Dispose();
    }

    private async Task RunSessionAsync(
        NodeId node, IAsyncStreamReader<PeerMessage> incoming, IAsyncStreamWriter<PeerMessage> outgoing, CancellationToken cancellationToken)
    {
        try
        {
            var receive = Volatile.Read(ref _receive);
            var received = Volatile.Read(ref _received);
            await LinkOf(node).RunSessionAsync(incoming, outgoing, frame => receive(node, frame), received, cancellationToken).ConfigureAwait(false);
        }
        finally
        {
            Volatile.Read(ref _silent)(node);
        }
    }

    // On the timers' thread, which sets the timer again before it waits. Set by another thread, it would wake that one once more each time.
    private void SayAlive()
    {
        try
        {
            foreach (var (node, link) in _links)
            {
                link.SayAlive();
                // A peer that is stopped or cut off keeps its connection open, and the stream is to be opened anew by the node that opened it.
                if (link.IsUnheard && node.Value < identity.Node.Value)
                    link.EndIfUnheard();
                // Tells all replicas, for which other timers need not wait.
                if (link.IsSilentFor(SilenceMax))
                    ThreadPool.UnsafeQueueUserWorkItem(static silent => silent.Self.TellSilent(silent.Node), (Self: this, Node: node), preferLocal: false);
            }
        }
        catch (Exception failure)
        {
            Failed(failure);
        }
        if (!_stopping.IsCancellationRequested)
            _alive!.Change(CommonMoments.Until(PeerLink.AliveInterval), Timeout.InfiniteTimeSpan);
    }

    private void TellSilent(NodeId node)
    {
        try
        {
            Volatile.Read(ref _silent)(node);
        }
        catch (Exception failure)
        {
            Failed(failure);
        }
    }

    // A bug. The messages continue, because nothing else tells replicas of nodes that are cut off, and other nodes that this one is not.
    private void Failed(Exception failure)
    {
        LoopFailures.Count();
        TransportLog.LoopFailed(log, "the messages that say that this node is alive, and the watch for silent nodes", failure);
    }

    private PeerLink LinkOf(NodeId node) => _links.GetOrAdd(node, static _ => new PeerLink());

    private PeerMessage Hello() => new()
    {
        Hello = new PeerHello
        {
            ClusterId = identity.ClusterId, NodeId = identity.Node, Levels = identity.Levels.ToMessage(),
            Incarnation = identity.Incarnation, Lineage = identity.Lineage.ToByteString()
        },
    };

    // A node that refuses the stream may have ended it before. Then its answer says why, and the failed write does not.
    private async Task WriteHelloAsync(AsyncDuplexStreamingCall<PeerMessage, PeerMessage> call, CancellationToken cancellationToken)
    {
        try
        {
            await call.RequestStream.WriteAsync(Hello(), cancellationToken).ConfigureAwait(false);
        }
        catch (RpcException failed) when (failed.StatusCode == StatusCode.Cancelled)
        {
            await call.ResponseStream.MoveNext(cancellationToken).ConfigureAwait(false);
            throw;
        }
    }

    // Returns the other node's id.
    private async Task<NodeId> ReadHelloAsync(IAsyncStreamReader<PeerMessage> incoming, CancellationToken cancellationToken)
    {
        if (!await incoming.MoveNext(cancellationToken).ConfigureAwait(false) || incoming.Current.Hello is not { } hello)
            throw new RpcException(new Status(StatusCode.InvalidArgument, "A stream between nodes begins with a hello."));
        if (hello.ClusterId != identity.ClusterId)
            throw new RpcException(new Status(StatusCode.FailedPrecondition, $"Node {hello.NodeId} belongs to another cluster."));
        if (Lineage.Read(hello.Lineage) != identity.Lineage)
            throw new RpcException(new Status(StatusCode.FailedPrecondition, $"Node {hello.NodeId} has data of lineage {Lineage.Read(hello.Lineage)}, but node "
                + $"{identity.Node} has data of {identity.Lineage}."));
        if (ProgramLevels.Read(hello.Levels).WhyNot(identity.FormatLevel, identity.ContractLevel) is { } reason)
            throw new RpcException(new Status(StatusCode.FailedPrecondition, $"Node {hello.NodeId} cannot be a part of the cluster: {reason} by its program. "
                + $"Node {identity.Node} goes by the levels that were in force when it started."));
        return hello.NodeId;
    }

    // Dials every node with a lower id in the map, and redials it.
    private async Task FollowAsync()
    {
        var dialing = new Dictionary<NodeId, Task>();
        while (!_stopping.IsCancellationRequested)
        {
            var snapshot = _map!.Snapshot;
            foreach (var node in snapshot.Nodes.Keys.Where(
                node => node.Value < identity.Node.Value && (!dialing.TryGetValue(node, out var running) || running.IsCompleted)))
            {
                // The dialing of the node has ended because this node stops, or because of a bug.
                if (dialing.TryGetValue(node, out var ended) && ended.Exception is { } failure)
                {
                    LoopFailures.Count();
                    TransportLog.LoopFailed(log, $"the stream to node {node}", failure);
                }
                dialing[node] = DialAsync(node);
            }
            await snapshot.Replaced.WaitAsync(_stopping.Token).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        }
        await Task.WhenAll(dialing.Values).ConfigureAwait(false);
    }

    private async Task DialAsync(NodeId node)
    {
        var pause = PauseMin;
        while (!_stopping.IsCancellationRequested)
        {
            var snapshot = _map!.Snapshot;
            if (!snapshot.Nodes.TryGetValue(node, out var record))
            {
                // The node left the cluster. It may join again.
                await snapshot.Replaced.WaitAsync(_stopping.Token).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
                continue;
            }
            var address = record.PeerAddress;
            try
            {
                if (address.Length == 0)
                    throw new InvalidOperationException("its record names no port for other nodes, because it runs an older version");
                using var channel = StreamChannelTo(node, address, identity.Cluster, credentials, LinkOf(node).HeardPart);
                // Always ends with an exception, however long the stream lasted.
                await ConnectAsync(node, channel, connected: () => pause = PauseMin).ConfigureAwait(false);
            }
            catch (Exception failure)
            {
                // Whatever the failure is, dialing continues, because nothing else dials that node.
                if (!_stopping.IsCancellationRequested && LinkOf(node).TryChangeReason(failure.Message))
                    TransportLog.NotConnected(log, node, address, failure.Message);
            }
            await Task.Delay(pause * (0.5 + Random.Shared.NextDouble()), _stopping.Token).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
            pause = pause * 2 < PauseMax ? pause * 2 : PauseMax;
        }
    }

    private async Task ConnectAsync(NodeId node, GrpcChannel channel, Action connected)
    {
        var isGreeted = false;
        using var limit = CancellationTokenSource.CreateLinkedTokenSource(_stopping.Token);
        limit.CancelAfter(HelloTimeMax);
        using var call = new Internal.V1.Replication.ReplicationClient(channel.Calls()).Connect(cancellationToken: limit.Token);
        try
        {
            await WriteHelloAsync(call, limit.Token).ConfigureAwait(false);
            var answered = await ReadHelloAsync(call.ResponseStream, limit.Token).ConfigureAwait(false);
            if (answered != node)
                throw new RpcException(new Status(StatusCode.FailedPrecondition, $"Node {answered} answers at its address."));
            limit.CancelAfter(Timeout.InfiniteTimeSpan);
            isGreeted = true;
            connected();
            LinkOf(node).TryChangeReason("");
            TransportLog.Connected(log, node, "this node opened the stream");
            await RunSessionAsync(node, call.ResponseStream, call.RequestStream, _stopping.Token).ConfigureAwait(false);
        }
        catch (Exception ended) when ((isGreeted ? LinkOf(node).IsUnheard : limit.IsCancellationRequested) && !_stopping.IsCancellationRequested)
        {
            throw new TimeoutException(
                string.Create(CultureInfo.InvariantCulture, $"it has sent nothing for {HelloTimeMax.TotalSeconds:0.###} s, although it is connected"), ended);
        }
    }

    /// <summary>
    /// A connection to a node, for calls; disposed by the caller. The other side must prove that it is that node, wherever the address leads.
    /// </summary>
    /// <exception cref="ArgumentException">The address is not valid, or is a plain-text address while this node uses TLS.</exception>
    public GrpcChannel ChannelTo(NodeId node, string address) => ChannelTo(node, address, identity.Cluster, credentials);

    /// <summary>The same for a node that has no streams yet.</summary>
    /// <exception cref="ArgumentException">The address is not valid, or is a plain-text address while this node uses TLS.</exception>
    public static GrpcChannel ChannelTo(NodeId node, string address, string cluster, CredentialFiles? credentials) =>
        ChannelTo(address, ConnectorTo(node, address, cluster, credentials), received: null);

    /// <summary>A connection to a node for the stream, over which something comes all the time; disposed by the caller.</summary>
    /// <param name="node">The node.</param>
    /// <param name="address">Its address.</param>
    /// <param name="cluster">The cluster's name.</param>
    /// <param name="credentials">See <see cref="PeerTransport"/>.</param>
    /// <param name="received">Called for each part of a message that is received.</param>
    /// <exception cref="ArgumentException">The address is not valid, or is a plain-text address while this node uses TLS.</exception>
    internal static GrpcChannel StreamChannelTo(NodeId node, string address, string cluster, CredentialFiles? credentials, Action received) =>
        ChannelTo(address, ConnectorTo(node, address, cluster, credentials), received);

    private static TlsConnector ConnectorTo(NodeId node, string address, string cluster, CredentialFiles? credentials) =>
        credentials is null || address.StartsWith("https:", StringComparison.Ordinal)
            ? new TlsConnector(credentials, NodeNames.OfNode(node.Value, cluster))
            : throw new ArgumentException("it has no TLS, and this node does not connect in plain text");

    private static GrpcChannel ChannelTo(string address, TlsConnector connector, Action? received)
    {
        var connection = new SocketsHttpHandler
        {
            UseProxy = false,
            AllowAutoRedirect = false,
            ConnectTimeout = TimeSpan.FromSeconds(1),
            ConnectCallback = connector.ConnectAsync,
            // Does not grow (see KvCluster.Node.csproj).
            InitialHttp2StreamWindowSize = 8 << 20,
            // A peer that is stopped or cut off keeps its connection open, which a call must notice. For a stream, what is received tells as much, and a timer
            // that wakes the node each second for pings would be in vain.
            KeepAlivePingDelay = received is null ? TimeSpan.FromSeconds(2) : Timeout.InfiniteTimeSpan,
            KeepAlivePingTimeout = TimeSpan.FromSeconds(2),
            KeepAlivePingPolicy = HttpKeepAlivePingPolicy.WithActiveRequests,
        };
        return GrpcChannel.ForAddress(address, new GrpcChannelOptions
        {
            MaxReceiveMessageSize = MessageBytesMax,
            DisposeHttpClient = true,
            HttpHandler = received is null ? connection : new ReceptionHandler(connection, received),
        });
    }
}
