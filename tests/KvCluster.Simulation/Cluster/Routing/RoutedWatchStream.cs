using Grpc.Core;
using KvCluster.Client.Transport;
using KvCluster.Node.Api.Errors;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Simulation.Cluster.Routing;

/// <summary>
/// A stream of a watch between a node and a process, in simulated time. A node writes the next message when the process has got the last one.
/// </summary>
internal sealed class RoutedWatchStream(ClusterRun run, RoutedNetwork network, ClusterNode node)
    : IServerStreamWriter<MessageBytes>, IAsyncStreamReader<StreamMessage<WatchResponse>>
{
    private readonly CancellationTokenSource _gone = new();
    private readonly Queue<StreamMessage<WatchResponse>> _arrived = new();
    private TaskCompletionSource<bool>? _waiting;
    private TaskCompletionSource? _writing;
    private RpcException? _end;
    private readonly int _thread = Environment.CurrentManagedThreadId;
    private ulong _process;

    public ClusterNode Node => node;

    /// <summary>The process has given the stream up, or it broke.</summary>
    public CancellationToken Gone => _gone.Token;

    public WriteOptions? WriteOptions { get; set; }

    public StreamMessage<WatchResponse> Current { get; private set; } = StreamMessage<WatchResponse>.Of(new WatchResponse());

    /// <summary>Opens the stream.</summary>
    public void Open(WatchRequest request)
    {
        // As on a wire.
        var sent = request.Clone();
        Later(() =>
        {
            if (network.IsCut(node.Id))
                return;
            if (node.Watches is null)
            {
                Break("connection refused");
                return;
            }
            _process = node.Process;
            node.Events.Deliver(() => _ = node.Watches?.ServeAsync(sent, this));
        });
    }

    public Task WriteAsync(MessageBytes message)
    {
        Violation.Unless(Environment.CurrentManagedThreadId == _thread, Rule.Contract, "a watch of a node goes on on another thread");
        var response = StreamMessage<WatchResponse>.Of(WatchResponse.Parser.ParseFrom(message.Written));
        message.Return();
        if (_gone.IsCancellationRequested)
            return Task.FromCanceled(_gone.Token);
        var written = _writing = new TaskCompletionSource();
        Later(() =>
        {
            // What is dropped is written until the stream breaks.
            if (network.IsCut(node.Id) || _end is not null)
                return;
            Arrive(response);
            InProcess(() => written.TrySetResult());
        });
        return written.Task;
    }

    public Task WriteAsync(MessageBytes message, CancellationToken cancellationToken) => WriteAsync(message);

    /// <summary>The node ends the stream.</summary>
    public void End(ApiError why) => Later(() =>
    {
        if (!network.IsCut(node.Id))
            End(why.ToStatus().ToRpcException());
    });

    public void Break(string why) => End(new RpcException(new Grpc.Core.Status(StatusCode.Unavailable, why)));

    public Task<bool> MoveNext(CancellationToken cancellationToken)
    {
        if (_arrived.TryDequeue(out var next))
        {
            Current = next;
            return Task.FromResult(true);
        }
        // A waiting caller continues in the step that ends its wait, on the run's thread.
        _waiting = new TaskCompletionSource<bool>();
        if (_end is not null)
            _waiting.SetException(_end);
        return _waiting.Task;
    }

    /// <summary>The process gives the stream up.</summary>
    public void GiveUp()
    {
        network.Closed(this);
        End(new RpcException(new Grpc.Core.Status(StatusCode.Cancelled, "the call was cancelled")));
    }

    private void Arrive(StreamMessage<WatchResponse> response)
    {
        if (_waiting is not { Task.IsCompleted: false } waiting)
        {
            _arrived.Enqueue(response);
            return;
        }
        Current = response;
        waiting.SetResult(true);
    }

    private void End(RpcException end)
    {
        if (_end is not null)
            return;
        _end = end;
        Later(() => InProcess(() =>
        {
            _gone.Cancel();
            // As on a connection. The room of its message is given back then.
            _writing?.TrySetResult();
        }));
        if (_waiting is { Task.IsCompleted: false } waiting)
            waiting.SetException(end);
    }

    private void Later(Action action) => run.Time.After(20 + run.Random.NextInt64(300), action);

    private void InProcess(Action action)
    {
        if (node.IsUp && node.Process == _process)
            node.Events.Deliver(action);
    }
}
