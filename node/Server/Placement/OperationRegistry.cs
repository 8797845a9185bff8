// The operations that this node executes as the leader of their shards: replacements of replicas for operators, for other nodes, and those that an earlier
// leader began. An operation runs until it has ended, whoever waits for it. A learner's record names its operation, so that the next leader resumes it. Thread
// pool only.
using System.Security.Cryptography;
using KvCluster.Admin.V1;
using KvCluster.Node.Hosting;
using KvCluster.Node.Map;
using KvCluster.Node.Runtime;
using KvCluster.Node.Shards.Loop;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Placement;

/// <summary>Starts, finds, cancels and resumes operations.</summary>
internal sealed class OperationRegistry : IAsyncDisposable
{
    /// <summary>Operations that have ended are forgotten beyond this number, the oldest first.</summary>
    private const int EndedMax = 256;

    /// <summary>Operations that run at once. Each shard has one of them rarely, and each waits most of the time.</summary>
    private const int RunningMax = 1_024;

    private static readonly TimeSpan ResumeInterval = TimeSpan.FromSeconds(1);

    private readonly NodeIdentity _identity;
    private readonly ReplacementExecution _replacement;
    private readonly ShardDirectory _map;
    private readonly ShardHost _shards;
    private readonly ILogger _log;
    private readonly CancellationTokenSource _stopping = new();
    private readonly Lock _lock = new();

    // In the order in which they started.
    private readonly List<ReplacementOperation> _operations = [];
    private readonly BackgroundLoop _loop;

    /// <param name="identity">This node.</param>
    /// <param name="replacement">Carries them out.</param>
    /// <param name="map">The shards' records.</param>
    /// <param name="shards">The replicas of this node.</param>
    /// <param name="log">Receives one line per operation that failed.</param>
    public OperationRegistry(NodeIdentity identity, ReplacementExecution replacement, ShardDirectory map, ShardHost shards, ILogger log)
    {
        (_identity, _replacement, _map, _shards, _log) = (identity, replacement, map, shards, log);
        _loop = new BackgroundLoop(
            "the resumption of operations", ResumeAsync, static () => CommonMoments.Until(ResumeInterval), shards.Threads.Timers, log);
    }

    /// <summary>All operations that are known here.</summary>
    public IReadOnlyList<ReplacementOperation> All
    {
        get
        {
            lock (_lock)
                return [.. _operations];
        }
    }

    /// <summary>Starts a replacement, or finds the one that runs for the same.</summary>
    /// <param name="shard">A shard that this node leads.</param>
    /// <param name="request">What is asked for.</param>
    /// <returns>The operation; null with the reason if it cannot begin.</returns>
    public async Task<(ReplacementOperation? Operation, string Refusal)> StartAsync(HostedShard shard, ReplacementRequest request)
    {
        if (FindRunning(request) is { } running)
            return (running, "");
        var known = await _replacement.ForeseeAsync(shard, request).ConfigureAwait(false);
        return known is { Done: false, Reason: var reason } ? (null, reason) : Begin(shard, request, NewNumber(), known);
    }

    /// <summary>An operation that runs here or has ended here; null if there is none.</summary>
    public ReplacementOperation? Find(OperationId id)
    {
        lock (_lock)
            return _operations.Find(operation => operation.Id == id);
    }

    /// <summary>The same, resumed if this node leads the shard now and the operation was begun by an earlier leader.</summary>
    /// <param name="shard">The operation's shard, which this node leads.</param>
    /// <param name="id">The operation's id.</param>
    public async Task<ReplacementOperation?> FindOrResumeAsync(HostedShard shard, OperationId id)
    {
        if (Find(id) is { } known)
            return known;
        if (await ReplacementExecution.AddedByAsync(shard, id.Number).ConfigureAwait(false) is not { } added)
            return null;
        return Begin(shard, ReplacementPlan.Resumed(id.Shard, added), id.Number, added.Learner ? null : new OrderResult(true, "")).Operation;
    }

    public async ValueTask DisposeAsync()
    {
        await _loop.DisposeAsync().ConfigureAwait(false);
        // No operation begins from here on.
        await _stopping.CancelAsync().ConfigureAwait(false);
        foreach (var operation in All)
            operation.Stop();
        await Task.WhenAll(All.Select(static operation => operation.Running)).ConfigureAwait(false);
        _stopping.Dispose();
    }

    private static ulong NewNumber() => BitConverter.ToUInt64(RandomNumberGenerator.GetBytes(sizeof(ulong))) | 1;

    private ReplacementOperation? FindRunning(ReplacementRequest request)
    {
        lock (_lock)
            return FindRunningLocked(request);
    }

    private ReplacementOperation? FindRunningLocked(ReplacementRequest request)
    {
        Invariant.CheckHeld(_lock);
        return _operations.Find(operation => operation.IsRunning && operation.Request with { Force = false } == request with { Force = false });
    }

    private (ReplacementOperation? Operation, string Refusal) Begin(HostedShard shard, ReplacementRequest request, ulong number, OrderResult? known)
    {
        lock (_lock)
        {
            var id = new OperationId(shard.Shard, number);
            if ((_operations.Find(operation => operation.Id == id) ?? FindRunningLocked(request)) is { } other)
                return (other, "");
            if (_stopping.IsCancellationRequested)
                return (null, $"node {_identity.Node} is stopping; try again");
            if (_operations.Count(static operation => operation.IsRunning) >= RunningMax)
                return (null, $"node {_identity.Node} executes {RunningMax} operations already; try again later");
            var operation = new ReplacementOperation(id, request, _identity.Node);
            operation.Running = known is { } result ? EndAsync(operation, result) : Task.Run(() => RunAsync(shard, operation));
            _operations.Add(operation);
            ForgetLocked();
            return (operation, "");
        }
    }

    private static Task EndAsync(ReplacementOperation operation, OrderResult result)
    {
        operation.End(result.Done ? OperationState.Done : OperationState.Failed, result.Reason);
        return Task.CompletedTask;
    }

    // Never throws.
    private async Task RunAsync(HostedShard shard, ReplacementOperation operation)
    {
        try
        {
            var result = await _replacement.ReplaceAsync(shard, operation.Request, operation.Id.Number, operation.Tell, operation.Cancelled)
                .ConfigureAwait(false);
            // The next leader goes on.
            if (!result.Done && !shard.Replica!.IsServing)
                Leave(operation, shard);
            else
                operation.End(result.Done ? OperationState.Done : OperationState.Failed, result.Reason);
        }
        catch (OperationCanceledException) when (_stopping.IsCancellationRequested)
        {
            Leave(operation, shard);
        }
        catch (OperationCanceledException)
        {
            await CancelAsync(shard, operation).ConfigureAwait(false);
        }
        catch (Exception failure)
        {
            // This is a bug. The callers that wait for the operation must learn that it has ended.
            LoopFailures.Count();
            PlacementLog.OperationFailed(_log, operation.Id.ToString(), failure);
            operation.End(OperationState.Failed, $"node {_identity.Node} failed with {failure.GetType().Name}; see its log");
        }
        lock (_lock)
            ForgetLocked();
    }

    private async Task CancelAsync(HostedShard shard, ReplacementOperation operation)
    {
        try
        {
            var removed = await _replacement.RemoveLearnerOfAsync(shard, operation.Id.Number, _stopping.Token).ConfigureAwait(false);
            operation.End(
                removed.Done ? OperationState.Cancelled : OperationState.Failed,
                removed.Done ? "" : $"it was cancelled, but its learner was not removed: {removed.Reason}");
        }
        catch (OperationCanceledException)
        {
            Leave(operation, shard);
        }
    }

    // Another node leads the shard, or this one stops. Whoever waits asks the next leader.
    private void Leave(ReplacementOperation operation, HostedShard shard)
    {
        lock (_lock)
            _operations.Remove(operation);
        operation.LeaveTo(shard.Route.LeaderId == _identity.Node ? NodeId.None : shard.Route.LeaderId);
    }

    private void ForgetLocked()
    {
        Invariant.CheckHeld(_lock);
        for (var surplus = _operations.Count(static operation => !operation.IsRunning) - EndedMax; surplus > 0; surplus--)
            _operations.RemoveAt(_operations.FindIndex(static operation => !operation.IsRunning));
    }

    // Learners whose operation an earlier leader began.
    private async Task ResumeAsync(CancellationToken stop)
    {
        foreach (var (id, entry) in _map.Snapshot.Records)
        {
            foreach (var learner in entry.Record.Replicas)
            {
                if (learner is { Learner: true, Operation: not 0 } && _shards.Find(id) is { Replica.IsServing: true } shard)
                    await FindOrResumeAsync(shard, new OperationId(id, learner.Operation)).WaitAsync(stop).ConfigureAwait(false);
            }
        }
    }
}
