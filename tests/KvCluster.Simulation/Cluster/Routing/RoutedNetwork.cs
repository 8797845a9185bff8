using System.Runtime.CompilerServices;
using Grpc.Core;
using KvCluster.Client.Transport;
using KvCluster.V1;

namespace KvCluster.Simulation.Cluster.Routing;

/// <summary>
/// One process's connections to all nodes, in simulated time: the exchanges, map streams and watches of its <see cref="CallRouter"/>. They break with the
/// node's process or by a fault. Messages over a cut link are dropped, and nobody is told before the stream's keep-alive ends.
/// </summary>
internal sealed class RoutedNetwork(ClusterRun run) : INodeConnector, IWatchSource
{
    // The real transport waits two seconds for the answer to a ping. Calls of a run have only that long in all.
    private const long KeepAliveUs = 400_000;

    private readonly HashSet<NodeId> _cut = [];
    private readonly List<RoutedConnection> _connections = [];
    private readonly List<RoutedWatchStream> _watches = [];
    private RoutedMapStream? _stream;

    /// <summary>The number of map streams opened.</summary>
    public int Refreshes { get; private set; }

    /// <summary>Links on which everything is dropped for now.</summary>
    public bool IsCut(NodeId node) => _cut.Contains(node);

    public static string AddressOf(NodeId node) => $"http://node{node}:1";

    public INodeConnection Connect(string address)
    {
        var connection = new RoutedConnection(run, this, NodeAt(address));
        _connections.Add(connection);
        return connection;
    }

    public async IAsyncEnumerable<ShardMap> WatchMap(string address, [EnumeratorCancellation] CancellationToken cancellationToken)
    {
        Violation.Unless(_stream is null, Rule.OneRefresh, $"a refresh of the map is asked of {address} while another is in flight");
        Refreshes++;
        var stream = _stream = new RoutedMapStream(run, this, NodeAt(address));
        try
        {
            stream.Open();
            using (cancellationToken.UnsafeRegister(_ => stream.Break("cancelled"), null))
            {
                while (true)
                    yield return await stream.NextAsync().ConfigureAwait(false);
            }
        }
        finally
        {
            _stream = null;
        }
    }

    public AsyncServerStreamingCall<StreamMessage<WatchResponse>> Watch(string address, WatchRequest request, CancellationToken cancellationToken)
    {
        var stream = new RoutedWatchStream(run, this, NodeAt(address));
        _watches.Add(stream);
        stream.Open(request);
        return new AsyncServerStreamingCall<StreamMessage<WatchResponse>>(
            stream, Task.FromResult(new Metadata()), static () => Grpc.Core.Status.DefaultSuccess, static () => [], stream.GiveUp);
    }

    /// <summary>A stream of a watch is not used any more.</summary>
    public void Closed(RoutedWatchStream stream) => _watches.Remove(stream);

    /// <summary>Drops everything from and to these nodes until <see cref="Heal"/>.</summary>
    public void Cut(IEnumerable<NodeId> nodes)
    {
        _cut.UnionWith(nodes);
        run.Time.After(KeepAliveUs, () => BreakWhere(IsCut, "no answer to a ping"));
    }

    public void Heal() => _cut.Clear();

    /// <summary>Breaks every stream. Requests already sent arrive, their answers do not.</summary>
    public void BreakAll() => BreakWhere(_ => true, "connection reset");

    /// <summary>A node's process has ended. Its streams break where that is noticed.</summary>
    public void Ended(NodeId node) =>
        run.Time.After(20 + run.Random.NextInt64(300), () => BreakWhere(other => other == node && !IsCut(node), "connection reset"));

    /// <summary>A node's knowledge of the map has changed.</summary>
    public void MapChanged(NodeId node)
    {
        if (_stream is { } stream && stream.Node.Id == node)
            run.Time.After(20 + run.Random.NextInt64(2_000), stream.Tell);
    }

    private ClusterNode NodeAt(string address) => run.Nodes[int.Parse(address["http://node".Length..^":1".Length]) - 1];

    private void BreakWhere(Func<NodeId, bool> node, string why)
    {
        foreach (var connection in _connections.Where(connection => node(connection.Node.Id)).ToArray())
            connection.Break(why);
        foreach (var watch in _watches.Where(watch => node(watch.Node.Id)).ToArray())
            watch.Break(why);
        if (_stream is { } stream && node(stream.Node.Id))
            stream.Break(why);
    }
}
