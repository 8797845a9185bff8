using Grpc.Core;
using KvCluster.Node.Map;
using KvCluster.Node.Runtime;
using KvCluster.V1;

namespace KvCluster.Simulation.Cluster.Routing;

/// <summary>The map stream of one node to one process: first everything that the node knows, then the changes. Ends with an error.</summary>
internal sealed class RoutedMapStream(ClusterRun run, RoutedNetwork network, ClusterNode node)
{
    private static readonly NodeIdentity Identity = new("simulated", "1", new(1), 1, "http://simulated:1");
    private readonly Queue<ShardMap> _maps = new();
    private TaskCompletionSource<ShardMap>? _waiting;
    private ShardDirectorySnapshot? _sent;
    private string? _broken;
    private bool _opened;

    public ClusterNode Node { get; } = node;

    /// <summary>Opens the stream.</summary>
    public void Open() => run.Time.After(20 + run.Random.NextInt64(2_000), () =>
    {
        if (!Node.IsUp && !network.IsCut(Node.Id))
            Break("connection refused");
        _opened = true;
        Tell();
    });

    /// <summary>The next message.</summary>
    /// <exception cref="RpcException">The stream broke.</exception>
    public Task<ShardMap> NextAsync()
    {
        if (_maps.TryDequeue(out var map))
            return Task.FromResult(map);
        // A waiting caller continues in the step that ends its wait, on the run's thread.
        _waiting = new TaskCompletionSource<ShardMap>();
        if (_broken is not null)
            _waiting.SetException(Failure(_broken));
        return _waiting.Task;
    }

    /// <summary>Sends what the node knows and this stream has not sent yet.</summary>
    public void Tell()
    {
        var current = Node.Map;
        // A node that knows nothing yet sends nothing.
        if (!_opened || _broken is not null || network.IsCut(Node.Id) || !Node.IsUp || current == ShardDirectorySnapshot.Empty)
            return;
        var map = _sent is null ? current.Describe(Identity) : current.Since(_sent, Identity);
        _sent = current;
        if (_waiting is { Task.IsCompleted: false } waiting)
            waiting.SetResult(map);
        else
            _maps.Enqueue(map);
    }

    public void Break(string why)
    {
        if (_broken is not null)
            return;
        _broken = why;
        if (_waiting is { Task.IsCompleted: false } waiting)
            waiting.SetException(Failure(why));
    }

    private static RpcException Failure(string why) => new(new Grpc.Core.Status(StatusCode.Unavailable, why));
}
