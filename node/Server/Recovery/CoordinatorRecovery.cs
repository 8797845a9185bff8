// Rebuilds the coordinator's records: asks the nodes, plans, and puts the records in an order in which an end at any point is harmless (README.md). Called by an operator's call,
// on the thread pool, on one node; it needs nothing of that node but its way to the coordinator and to the others. Nothing is kept between two calls.
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Admin.V1;
using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;
using KvCluster.Replication.Protocol;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Recovery;

/// <summary>Executes a recovery.</summary>
/// <param name="node">This node.</param>
/// <param name="coordinator">The coordinator, not guarded.</param>
/// <param name="keys">The cluster's keys.</param>
/// <param name="ownReport">Makes this node's report.</param>
/// <param name="channelTo">Creates a connection to a node at an address; disposed by this class.</param>
/// <param name="log">Receives a line when records are put.</param>
internal sealed partial class CoordinatorRecovery(NodeId node, ICoordinator coordinator, CoordinatorKeys keys, Func<CancellationToken, Task<NodeReport>> ownReport, Func<NodeId, string, GrpcChannel> channelTo, ILogger log)
{
    private const int AttemptsMax = 3;

    /// <summary>A node has two seconds to confirm its leaderships, all at once.</summary>
    private static readonly TimeSpan AnswerTimeMax = TimeSpan.FromSeconds(5);

    /// <summary>Who has begun to put records goes on without its caller, but not for ever: the coordinator may have gone again.</summary>
    private static readonly TimeSpan PutTimeMax = TimeSpan.FromMinutes(1);

    private readonly SemaphoreSlim _turn = new(1);

    /// <summary>Plans a recovery and, unless only the plan is asked for or it is refused, executes it.</summary>
    /// <exception cref="RecoveryEndedException">It ended after some records were put. No node follows them; it is to be run again.</exception>
    /// <exception cref="CoordinatorUnavailableException">The coordinator does not answer. Nothing was changed.</exception>
    public async Task<RecoverResponse> RecoverAsync(RecoverRequest request, CancellationToken cancellationToken)
    {
        await _turn.WaitAsync(cancellationToken).ConfigureAwait(false);
        try
        {
            var store = coordinator.Anew();
            await using (store.ConfigureAwait(false))
            {
                // Before the nodes are asked: whatever changes from here on ends the recovery.
                var held = await store.ListAsync(keys.Root, cancellationToken).ConfigureAwait(false);
                var found = await AskAsync(Read(held) with { Without = request.Without.Select(static gone => new NodeId(gone)).ToHashSet() }, cancellationToken).ConfigureAwait(false);
                var plan = RecoveryPlan.Of(found, (uint)Random.Shared.Next());
                var response = Describe(plan, found);
                if (request.PlanOnly || plan.Refusals.Count > 0)
                    return response;
                await Task.Delay(TimeSpan.FromMilliseconds(plan.WaitMs), cancellationToken).ConfigureAwait(false);
                using var limit = new CancellationTokenSource(PutTimeMax);
                await PutAsync(store, plan, held, limit.Token).ConfigureAwait(false);
                response.Applied = true;
                return response;
            }
        }
        finally
        {
            _turn.Release();
        }
    }

    private RecoveryFindings Read(CoordinatorList held) => new()
    {
        Reports = [],
        HeldCluster = held.Entries.Where(entry => entry.Key == keys.Cluster).Select(static entry => RecordText.Parse<ClusterRecord>(entry.Value!)).SingleOrDefault(),
        HeldShards = [.. held.Entries.Where(entry => CoordinatorKeys.TryParseId(entry.Key, keys.Shards, out _)).Select(static entry => RecordText.Parse<ShardRecord>(entry.Value!))],
        HeldStarts = held.Entries.Where(entry => entry.Key.StartsWith(keys.Nodes, StringComparison.Ordinal) && entry.Key.EndsWith(CoordinatorKeys.StartsSuffix, StringComparison.Ordinal))
            .Select(entry => (IsId: CoordinatorKeys.TryParseId(entry.Key[..^CoordinatorKeys.StartsSuffix.Length], keys.Nodes, out var id), Node: new NodeId(id), Starts: entry.Value!))
            .Where(static entry => entry.IsId).ToDictionary(static entry => entry.Node, static entry => RecordText.Parse<NodeStarts>(entry.Starts)),
    };

    // Whoever answers may name further nodes, until all that are named have been asked.
    private async Task<RecoveryFindings> AskAsync(RecoveryFindings found, CancellationToken cancellationToken)
    {
        var reports = new List<NodeReport> { await ownReport(cancellationToken).ConfigureAwait(false) };
        var silent = new Dictionary<NodeId, string>();
        while (true)
        {
            found = found with { Reports = [.. reports], Silent = silent };
            var asked = found.Named.Where(other => !silent.ContainsKey(other) && reports.All(report => report.Node != other.Value)).ToList();
            if (asked.Count == 0)
                return found;
            foreach (var (other, report, error) in await Task.WhenAll(asked.Select(name => AskAsync(name, AddressOf(name, reports), cancellationToken))).ConfigureAwait(false))
            {
                if (report is not null)
                    reports.Add(report);
                else
                    silent[other] = error;
            }
        }
    }

    private static string? AddressOf(NodeId other, List<NodeReport> reports) =>
        reports.SelectMany(static report => report.Nodes).Where(known => known.NodeId == other && known.PeerAddress.Length > 0).MaxBy(static known => known.Incarnation)?.PeerAddress;

    private async Task<(NodeId Node, NodeReport? Report, string Error)> AskAsync(NodeId other, string? address, CancellationToken cancellationToken)
    {
        if (address is null)
            return (other, null, "no node that answered knows its address");
        for (var attempt = 1; ; attempt++)
        {
            try
            {
                using var channel = channelTo(other, address);
                var answer = await new Internal.V1.Recovery.RecoveryClient(channel).ReportAsync(new ReportRequest { Node = node.Value }, deadline: DateTime.UtcNow + AnswerTimeMax, cancellationToken: cancellationToken).ConfigureAwait(false);
                return answer.Report.Node == other.Value ? (other, answer.Report, "") : (other, null, $"node {answer.Report.Node} answers at {address}");
            }
            catch (ArgumentException failure)
            {
                return (other, null, $"{address}: {failure.Message}");
            }
            catch (RpcException failure) when (!cancellationToken.IsCancellationRequested)
            {
                // It may be opening or closing the port at this moment.
                if (attempt == AttemptsMax || failure.StatusCode != StatusCode.Unavailable)
                    return (other, null, $"{address}: {failure.Status.Detail}");
                await Task.Delay(TimeSpan.FromMilliseconds(200), cancellationToken).ConfigureAwait(false);
            }
        }
    }

    private async Task PutAsync(ICoordinator store, RecoveryPlan plan, CoordinatorList held, CancellationToken cancellationToken)
    {
        var revisions = held.Entries.ToDictionary(static entry => entry.Key, static entry => entry.ModRevision, StringComparer.Ordinal);
        var puts = plan.Shards.Select(shard => (Key: keys.Shard(shard.Record.ShardId), Value: RecordText.Format(shard.Record)))
            .Concat(plan.Starts.Select(starts => (Key: keys.Starts(starts.Key), Value: RecordText.Format(starts.Value)))).ToList();
        Puts(log, plan.Number, plan.Shards.Count, plan.Starts.Count);
        foreach (var (key, value) in puts)
            await PutAsync(store, key, revisions.GetValueOrDefault(key), value, cancellationToken).ConfigureAwait(false);
        var now = (await store.ListAsync(keys.Root, cancellationToken).ConfigureAwait(false)).Entries.ToDictionary(static entry => entry.Key, static entry => entry.Value, StringComparer.Ordinal);
        if (puts.FirstOrDefault(put => now.GetValueOrDefault(put.Key) != put.Value).Key is { } changed)
            throw new RecoveryEndedException($"somebody else changed {changed} meanwhile");
        // From here on the nodes follow.
        await PutAsync(store, keys.Cluster, revisions.GetValueOrDefault(keys.Cluster), RecordText.Format(plan.Cluster!), cancellationToken).ConfigureAwait(false);
        Done(log, plan.Number);
    }

    private static async Task PutAsync(ICoordinator store, string key, long revision, string value, CancellationToken cancellationToken)
    {
        try
        {
            var set = await store.SetUntilSettledAsync(key, revision, value, 0, cancellationToken).ConfigureAwait(false);
            if (set.Outcome != SetOutcome.Won)
                throw new RecoveryEndedException($"somebody else changed {key} meanwhile");
        }
        catch (Exception failure) when (failure is CoordinatorUnavailableException or CoordinatorAlarmException or OperationCanceledException)
        {
            throw new RecoveryEndedException(failure is OperationCanceledException ? $"the coordinator did not answer for {PutTimeMax.TotalSeconds} s" : failure.Message);
        }
    }

    private static RecoverResponse Describe(RecoveryPlan plan, RecoveryFindings found)
    {
        var response = new RecoverResponse { Recovery = plan.Number, WaitMs = plan.WaitMs, Refusals = { plan.Refusals } };
        response.Shards.AddRange(plan.Shards.Select(static shard => new RecoveredShard
        {
            Shard = shard.Record.Shard,
            Source = shard.Source.Value,
            Leader = shard.Leader.Value,
            Intact = { shard.Intact.Select(static voter => voter.Value) },
            Missing = { shard.Missing.Select(static voter => voter.Value) },
            Generation = shard.Record.Generation,
            Epoch = shard.Record.Epoch,
        }));
        response.Nodes.AddRange(found.Named.Union(found.Without).Order().Select(named => new RecoveredNode
        {
            Node = named.Value,
            Answered = found.Reports.Any(report => report.Node == named.Value),
            Error = OneLine.Of(found.Silent.GetValueOrDefault(named) ?? ""),
            Starts = plan.Starts.GetValueOrDefault(named)?.Starts ?? 0,
        }));
        return response;
    }

    [LoggerMessage(47, LogLevel.Warning, "Recovery {Recovery} of the coordinator's records begins: {Shards} shards and the starts of {Nodes} nodes are put. No node follows them before the cluster's record")]
    private static partial void Puts(ILogger log, ulong recovery, int shards, int nodes);

    [LoggerMessage(48, LogLevel.Warning, "Recovery {Recovery} of the coordinator's records is complete")]
    private static partial void Done(ILogger log, ulong recovery);
}

/// <summary>A recovery ended after it had put some records. No node follows them, and the next recovery replaces them.</summary>
internal sealed class RecoveryEndedException(string reason) : Exception(reason);
