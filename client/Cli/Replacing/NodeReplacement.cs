// Moves the replicas of a node that is replaced, for `kv admin replace-node`. The node is marked as leaving first, so that the cluster brings none back.
// Replicas for a named node are moved by one operation each, some at once; for the others the cluster chooses the nodes and moves one at a time. Everything
// that was begun goes on without this process, and a second run finds it.
using System.Collections.Concurrent;
using System.Diagnostics;
using System.Globalization;
using KvCluster.Client;

namespace KvCluster.Cli.Replacing;

/// <summary>One run of a plan. A shard that refuses stops no other.</summary>
/// <param name="admin">Makes the calls.</param>
/// <param name="plan">What is to be done.</param>
/// <param name="limit">How long to wait for everything.</param>
/// <param name="tell">Gets a line whenever something has changed. Any thread.</param>
internal sealed class NodeReplacement(KvAdmin admin, NodeReplacementPlan plan, TimeSpan limit, Action<string> tell)
{
    /// <summary>Replicas copied at once. Each reads and writes a whole shard beside the cluster's callers.</summary>
    private const int AtOnceMax = 4;

    /// <summary>Requests for one replica. The same request is only made again if its outcome is unknown, or its leader stopped before it had begun.</summary>
    private const int AttemptsMax = 3;

    private static readonly TimeSpan LookInterval = TimeSpan.FromSeconds(1);

    private readonly Stopwatch _waited = Stopwatch.StartNew();
    private readonly ConcurrentDictionary<uint, string> _told = new();

    /// <summary>Moves what can be moved, and waits for it.</summary>
    /// <param name="isLeaving">The node is marked as leaving already.</param>
    /// <param name="stop">Stops waiting.</param>
    /// <returns>What became of each replica of the plan.</returns>
    /// <exception cref="KvException">The node could not be marked as leaving, or the cluster could not be asked what became of its replicas.</exception>
    public async Task<IReadOnlyList<MoveOutcome>> RunAsync(bool isLeaving, CancellationToken stop)
    {
        if (!isLeaving)
            await admin.PlaceAsync(leave: [plan.From], cancellationToken: stop);
        tell($"node {plan.From} gets no more replicas; {plan.Moves.Count} are to leave it");
        var refusals = new ConcurrentDictionary<uint, string>();
        var atOnce = new ParallelOptions { MaxDegreeOfParallelism = AtOnceMax, CancellationToken = stop };
        await Parallel.ForEachAsync(plan.Moves.Where(static move => move.To is not null), atOnce, async (move, cancelled) =>
        {
            if (await MoveAsync(move, cancelled) is { } refusal)
                refusals[move.Shard] = refusal;
        });
        var shards = await ChosenAsync([.. plan.Moves.Where(static move => move is { To: null, Refusal.Length: 0 })], stop);
        return [.. plan.Moves.Select(move => OutcomeOf(move, shards, refusals.GetValueOrDefault(move.Shard)))];
    }

    // By what the nodes tell in the end, because the cluster also moves replicas of a node that leaves by itself.
    private MoveOutcome OutcomeOf(PlannedMove move, SortedDictionary<uint, IReadOnlyList<uint>> shards, string? refusal)
    {
        if (!IsThere(move, shards))
            return new MoveOutcome(move.Shard, shards[move.Shard].Except(move.Voters).Select(static node => (uint?)node).FirstOrDefault(), "");
        if (move.Refusal.Length > 0 || refusal is not null)
            return new MoveOutcome(move.Shard, To: null, refusal ?? move.Refusal);
        // The nodes may not report the result of an operation yet that has just ended.
        return move.To is not null
            ? new MoveOutcome(move.Shard, move.To, "")
            : new MoveOutcome(move.Shard, To: null, $"it did not move within {Text.Seconds(limit)} s; the cluster goes on with it");
    }

    // Returns why the replica was not moved; null if it was moved.
    private async Task<string?> MoveAsync(PlannedMove move, CancellationToken stop)
    {
        for (var attempt = 1; ; attempt++)
        {
            try
            {
                var operation = await EndAsync(await admin.StartReplaceAsync(move.Shard, plan.From, move.To, cancellationToken: stop), stop);
                return operation.State switch
                {
                    KvOperationState.Done => null,
                    KvOperationState.Running => $"operation {operation.Id} has not ended within {Text.Seconds(limit)} s, and goes on",
                    KvOperationState.Cancelled => "an operator cancelled it",
                    _ => operation.Reason,
                };
            }
            catch (KvException failure) when (attempt < AttemptsMax && failure is KvOutcomeUnknownException or { Reason: "NO_OPERATION" })
            {
                // A request that is repeated finds the operation that runs.
            }
            catch (KvException failure)
            {
                return failure.Message;
            }
        }
    }

    // The operation as it ended, or as it was when the limit was reached.
    private async Task<KvAdminOperation> EndAsync(KvAdminOperation operation, CancellationToken stop)
    {
        Tell(operation);
        while (operation.State == KvOperationState.Running && _waited.Elapsed < limit)
        {
            try
            {
                await foreach (var state in admin.WatchOperationAsync(operation.Id, stop))
                    Tell(operation = state);
            }
            catch (KvUnavailableException)
            {
                // The time of one call has passed, or the shard has no leader for the moment. The operation goes on.
                await Task.Delay(LookInterval, stop);
            }
        }
        return operation;
    }

    // Waits until the cluster has moved some replicas by itself. Returns where each shard's replicas are then.
    private async Task<SortedDictionary<uint, IReadOnlyList<uint>>> ChosenAsync(IReadOnlyList<PlannedMove> moves, CancellationToken stop)
    {
        for (var before = -1; ; await Task.Delay(LookInterval, stop))
        {
            var shards = NodeReplacementPlan.Shards(await admin.GetStatusAsync(cancellationToken: stop));
            var left = moves.Count(move => IsThere(move, shards));
            if (left == 0 || _waited.Elapsed >= limit)
                return shards;
            if (left != before)
                tell($"{left} replicas remain on node {plan.From}, for which the cluster chooses nodes one after the other");
            before = left;
            var running = (await admin.ListOperationsAsync(stop)).Operations.Where(static operation => operation.State == KvOperationState.Running);
            foreach (var operation in running.Where(operation => operation.FromNode == plan.From))
                Tell(operation);
        }
    }

    // A shard of which no node tells counts as not moved.
    private bool IsThere(PlannedMove move, SortedDictionary<uint, IReadOnlyList<uint>> shards) =>
        !shards.TryGetValue(move.Shard, out var voters) || voters.Contains(plan.From);

    private void Tell(KvAdminOperation operation)
    {
        var line = operation.State == KvOperationState.Done ? $"done on node {operation.ToNode}" : operation.Progress + TensOfPercent(operation);
        if (line.Length == 0 || (_told.TryGetValue(operation.Shard, out var before) && before == line))
            return;
        _told[operation.Shard] = line;
        tell($"shard {operation.Shard}: {line}");
    }

    // Exact bytes would be a line for each state of each shard.
    private static string TensOfPercent(KvAdminOperation operation) =>
        operation is { DoneBytes: { } done, TotalBytes: { } total and > 0 } ? string.Create(CultureInfo.InvariantCulture, $" ({done * 10 / total * 10} %)")
            : "";
}

/// <summary>What became of one replica.</summary>
/// <param name="Shard">Its shard.</param>
/// <param name="To">The node that has it in its place; null if it was not moved.</param>
/// <param name="Refusal">Why it was not moved; empty if it was.</param>
internal sealed record MoveOutcome(uint Shard, uint? To, string Refusal);
