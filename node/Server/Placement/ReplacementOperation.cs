using KvCluster.Admin.V1;
using KvCluster.Node.Shards;

namespace KvCluster.Node.Placement;

/// <summary>One replacement that this node executes: its state, for whoever asks or waits. Thread-safe.</summary>
/// <param name="id">Its id.</param>
/// <param name="request">What is asked for.</param>
/// <param name="node">This node.</param>
internal sealed class ReplacementOperation(OperationId id, ReplacementRequest request, NodeId node)
{
    private readonly Lock _lock = new();

    // Never disposed, because it has no timer, and its wait handle is not used.
    private readonly CancellationTokenSource _cancelled = new();
    private readonly TaskCompletionSource _ended = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private readonly long _startedUs = NowUs();
    private TaskCompletionSource _changed = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private OperationState _state = OperationState.Running;
    private string _reason = "";
    private string _progress = "it begins";
    private (ulong Done, ulong Total)? _bytes;
    private long? _endedUs;

    public OperationId Id { get; } = id;

    public ReplacementRequest Request { get; } = request;

    /// <summary>Its work; completes after it has ended, and never fails.</summary>
    public Task Running { get; set; } = Task.CompletedTask;

    /// <summary>Fires when it is to end early.</summary>
    public CancellationToken Cancelled => _cancelled.Token;

    /// <summary>Completes when it has ended, or another node executes it.</summary>
    public Task Ended => _ended.Task;

    /// <summary>It is executed here.</summary>
    public bool IsRunning
    {
        get
        {
            lock (_lock)
                return _state == OperationState.Running && !HasLeft;
        }
    }

    /// <summary>Another node executes it now.</summary>
    public bool HasLeft { get; private set; }

    /// <summary>The node that executes it now, if it has left; none if that is not known.</summary>
    public NodeId Next { get; private set; }

    /// <summary>Its state, and a task that completes when there is a newer one.</summary>
    public (ClusterOperation State, Task Changed) Describe()
    {
        lock (_lock)
        {
            var state = new ClusterOperation
            {
                Id = Id.ToString(), Kind = OperationKind.Replace,
                Shard = Request.Shard.Value, State = _state, Reason = _reason, Progress = _progress, Node = node.Value, StartedUs = _startedUs,
            };
            if (!Request.From.IsNone)
                state.FromNode = Request.From.Value;
            if (!Request.To.IsNone)
                state.ToNode = Request.To.Value;
            if (_bytes is var (done, total))
                (state.DoneBytes, state.TotalBytes) = (done, total);
            if (_endedUs is { } ended)
                state.EndedUs = ended;
            return (state, _changed.Task);
        }
    }

    /// <summary>Ends its work here, because the node stops.</summary>
    public void Stop() => _cancelled.Cancel();

    /// <summary>Ends it early. It has ended when <see cref="Ended"/> completes.</summary>
    public void Cancel()
    {
        Change(() => _progress = "it is being cancelled");
        _cancelled.Cancel();
    }

    /// <summary>Notes how far its new replica has caught up.</summary>
    public void Tell(ReplicaId replica, LeaderView view)
    {
        if (view.Followers.FirstOrDefault(follower => follower.Replica == replica) is not { } learner)
            return;
        var missing = view.Committed.Change > learner.Acknowledged.Change ? view.Committed.Change - learner.Acknowledged.Change : 0;
        var total = (ulong)learner.SnapshotBytes;
        (ulong, ulong)? bytes = total == 0 ? null : (Math.Min((ulong)learner.SnapshotStored, total), total);
        var progress = total > 0 && learner.SnapshotStored >= learner.SnapshotBytes
            ? $"the new replica verifies what it received: {learner.SnapshotVerified} bytes"
            : total > 0 ? "the new replica receives the shard's data"
            : $"the new replica catches up; {missing} changes are missing";
        lock (_lock)
        {
            if (_progress == progress && _bytes == bytes)
                return;
        }
        Change(() => (_progress, _bytes) = (progress, bytes));
    }

    /// <summary>It has ended.</summary>
    public void End(OperationState state, string reason)
    {
        Change(() => (_state, _reason, _progress, _endedUs) = (state, reason, "", NowUs()));
        _ended.TrySetResult();
    }

    /// <summary>Another node goes on with it.</summary>
    public void LeaveTo(NodeId next)
    {
        Change(() => (HasLeft, Next) = (true, next));
        _ended.TrySetResult();
    }

    private static long NowUs() => (TimeProvider.System.GetUtcNow() - DateTimeOffset.UnixEpoch).Ticks / TimeSpan.TicksPerMicrosecond;

    private void Change(Action change)
    {
        TaskCompletionSource changed;
        lock (_lock)
        {
            change();
            changed = _changed;
            _changed = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        }
        changed.TrySetResult();
    }
}
