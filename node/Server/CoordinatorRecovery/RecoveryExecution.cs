// Rebuilds the coordinator's records: asks the nodes, plans, and puts the records in an order in which an end at any point is harmless (README.md). Called by
// an operator's call, on the thread pool, on one node; it needs nothing of that node but its way to the coordinator and to the others. Nothing is kept between
// two calls.
using System.Security.Cryptography;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Admin.V1;
using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;
using KvCluster.Node.Hosting;
using KvCluster.Replication.Protocol;
using KvCluster.Storage.Files;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.CoordinatorRecovery;

/// <summary>Executes a recovery of the coordinator's records.</summary>
/// <param name="node">This node.</param>
/// <param name="coordinator">The coordinator, not guarded.</param>
/// <param name="keys">The cluster's keys.</param>
/// <param name="ownReport">Makes this node's report, and binds it to the recovery of a claim before.</param>
/// <param name="ownRelease">Ends that.</param>
/// <param name="channelTo">Creates a connection to a node at an address; disposed by this class.</param>
/// <param name="clock">The boot clock.</param>
/// <param name="log">Receives a line when records are put.</param>
internal sealed partial class RecoveryExecution(
    NodeId node, ICoordinator coordinator, CoordinatorKeys keys, Func<RecoveryClaim?, CancellationToken, Task<NodeReport>> ownReport,
    Action<RecoveryClaim> ownRelease, Func<NodeId, string, GrpcChannel> channelTo, TimeProvider clock, ILogger log)
{
    private const int AttemptsMax = 3;

    /// <summary>Each is a transaction that waits for the coordinator's disk, and a thousand shards should not take seconds.</summary>
    private const int PutsAtOnce = 32;

    /// <summary>A node has two seconds to ask its coordinator, and two to confirm its leaderships, all at once.</summary>
    private static readonly TimeSpan AnswerTimeMax = TimeSpan.FromSeconds(8);

    /// <summary>
    /// From before the first node is bound until the cluster's record is put, or nothing more is put. It goes on without its caller, but not for ever: the
    /// coordinator may have gone again. Much less than the time for which nodes stay bound (<see cref="KnownRecords.BoundTimeMax"/>).
    /// </summary>
    private static readonly TimeSpan CompleteTimeMax = TimeSpan.FromMinutes(3);

    private static readonly TimeSpan ReleaseTimeMax = TimeSpan.FromSeconds(2);

    private readonly SemaphoreSlim _turn = new(1);

    /// <summary>Plans a recovery and, unless only the plan is asked for or it is refused, executes it.</summary>
    /// <exception cref="RecoveryEndedException">It ended after the claim was put, perhaps after some records. It is to be run again.</exception>
    /// <exception cref="CoordinatorUnavailableException">The coordinator does not answer. Nothing was changed.</exception>
    public async Task<RecoverResponse> RecoverAsync(RecoverRequest request, CancellationToken cancellationToken)
    {
        await _turn.WaitAsync(cancellationToken).ConfigureAwait(false);
        try
        {
            var store = coordinator.Anew();
            await using (store.ConfigureAwait(false))
            {
                var id = BitConverter.ToUInt64(RandomNumberGenerator.GetBytes(sizeof(ulong))) | 1;
                // Before the nodes are asked: whatever changes from here on ends the recovery.
                var held = await store.ListAsync(keys.Root, cancellationToken).ConfigureAwait(false);
                var findings = Read(held) with { Without = request.Without.Select(static gone => new NodeId(gone)).ToHashSet() };
                var found = await AskAsync(findings, claim: null, [], cancellationToken).ConfigureAwait(false);
                var plan = RecoveryPlan.Of(found, id);
                if (request.PlanOnly || plan.Refusals.Count > 0)
                    return Describe(plan, found);
                var claim = new RecoveryClaim { Recovery = plan.Number, RecoveryId = id, Node = node.Value };
                return await ExecuteAsync(store, findings, held, claim, cancellationToken).ConfigureAwait(false);
            }
        }
        finally
        {
            _turn.Release();
        }
    }

    private async Task<RecoverResponse> ExecuteAsync(
        ICoordinator store, RecoveryFindings findings, CoordinatorList held, RecoveryClaim claim, CancellationToken cancellationToken)
    {
        var guard = new CoordinatorGuard(keys.Recovery, RecordText.Format(claim), default);
        var claimed = await store.SetUntilSettledAsync(guard.Key, RevisionOf(held, guard.Key), guard.Value, 0, cancellationToken).ConfigureAwait(false);
        if (claimed.Outcome != SetOutcome.Won)
            throw new CoordinatorUnavailableException("somebody else rebuilds the records at this moment. Wait until that has ended, and run this again.");
        using var limit = new CancellationTokenSource(CompleteTimeMax, clock);
        var asked = new Dictionary<NodeId, string>();
        var isOpen = false;
        try
        {
            var found = await AskAsync(findings, claim, asked, limit.Token).ConfigureAwait(false);
            var plan = RecoveryPlan.Of(found, claim.RecoveryId);
            var response = Describe(plan, found);
            if (plan.Refusals.Count == 0 && plan.Number != claim.Recovery)
                response.Refusals.Add("nodes have joined another recovery meanwhile; run this again");
            if (response.Refusals.Count > 0)
                return response;
            await Task.Delay(TimeSpan.FromMilliseconds(plan.WaitMs), clock, limit.Token).ConfigureAwait(false);
            await PutRecordsAsync(store, plan, held, guard, limit.Token).ConfigureAwait(false);
            isOpen = true;
            await PutClusterAsync(store, plan, held, guard, limit.Token).ConfigureAwait(false);
            response.Applied = true;
            return response;
        }
        catch (Exception failure) when (!isOpen
            && failure is CoordinatorUnavailableException or CoordinatorAlarmException or OperationCanceledException or RpcException or StorageIoException)
        {
            throw new RecoveryEndedException(WhyEnded(failure));
        }
        finally
        {
            // From the moment at which the cluster's record may have been put, only what the coordinator has decides.
            if (!isOpen)
                await ReleaseAsync(asked, claim).ConfigureAwait(false);
        }
    }

    private RecoveryFindings Read(CoordinatorList held)
    {
        var cluster = held.Entries.SingleOrDefault(entry => entry.Key == keys.Cluster);
        return new RecoveryFindings
        {
            Keys = keys.Root,
            Reports = [],
            HeldCluster = cluster.Value is null ? null : RecordText.Parse<ClusterRecord>(cluster.Value),
            HeldClusterText = cluster.Value ?? "",
            HeldClusterRevision = cluster.ModRevision,
            HeldClaim = held.Entries.Where(entry => entry.Key == keys.Recovery)
                .Select(static entry => RecordText.Parse<RecoveryClaim>(entry.Value!)).SingleOrDefault(),
            HeldShards = [.. held.Entries.Where(entry => CoordinatorKeys.TryParseId(entry.Key, keys.Shards, out _))
                .Select(static entry => RecordText.Parse<ShardRecord>(entry.Value!))],
            HeldStarts = held.Entries.Where(entry => entry.Key.StartsWith(keys.Nodes, StringComparison.Ordinal)
                && entry.Key.EndsWith(CoordinatorKeys.StartsSuffix, StringComparison.Ordinal))
                .Select(entry => (
                    IsId: CoordinatorKeys.TryParseId(entry.Key[..^CoordinatorKeys.StartsSuffix.Length], keys.Nodes, out var id),
                    Node: new NodeId(id), Starts: entry.Value!))
                .Where(static entry => entry.IsId).ToDictionary(static entry => entry.Node, static entry => RecordText.Parse<NodeStarts>(entry.Starts)),
        };
    }

    // Whoever answers may name further nodes, until all that are named have been asked. With a claim each is bound to the recovery before it answers. Whoever
    // was asked, and so may be bound even if no answer came, is in `asked` with its address.
    private async Task<RecoveryFindings> AskAsync(
        RecoveryFindings found, RecoveryClaim? claim, Dictionary<NodeId, string> asked, CancellationToken cancellationToken)
    {
        asked[node] = "";
        var reports = new List<NodeReport> { await ownReport(claim, cancellationToken).ConfigureAwait(false) };
        var silent = new Dictionary<NodeId, string>();
        while (true)
        {
            found = found with { Reports = [.. reports], Silent = silent };
            var next = found.Named.Union(found.Without).Where(other => !silent.ContainsKey(other) && reports.All(report => report.Node != other.Value))
                .Select(other => (Node: other, Address: AddressOf(other, reports))).ToList();
            if (next.Count == 0)
                return found;
            foreach (var (other, address) in next)
            {
                if (address is not null)
                    asked[other] = address;
            }
            foreach (var (other, report, error) in await Task.WhenAll(next.Select(
                one => AskAsync(one.Node, one.Address, claim, cancellationToken))).ConfigureAwait(false))
            {
                if (report is not null)
                    reports.Add(report);
                else
                    silent[other] = error;
            }
        }
    }

    private static string? AddressOf(NodeId other, List<NodeReport> reports) =>
        reports.SelectMany(static report => report.Nodes).Where(known => known.NodeId == other && known.PeerAddress.Length > 0)
            .MaxBy(static known => known.Incarnation)?.PeerAddress;

    private async Task<(NodeId Node, NodeReport? Report, string Error)> AskAsync(
        NodeId other, string? address, RecoveryClaim? claim, CancellationToken cancellationToken)
    {
        if (address is null)
            return (other, null, "no node that answered knows its address");
        for (var attempt = 1; ; attempt++)
        {
            try
            {
                using var channel = channelTo(other, address);
                var client = new Internal.V1.Recovery.RecoveryClient(channel.Calls());
                var limit = DateTime.UtcNow + AnswerTimeMax;
                var answer = claim is null
                    ? await client.ReportAsync(new ReportRequest { Node = node.Value }, deadline: limit, cancellationToken: cancellationToken)
                        .ConfigureAwait(false)
                    : await client.BindAsync(
                        new BindRequest { Node = node.Value, Claim = claim }, deadline: limit, cancellationToken: cancellationToken).ConfigureAwait(false);
                return answer.Report.Node == other.Value ? (other, answer.Report, "") : (other, null, $"node {answer.Report.Node} answers at {address}");
            }
            catch (ArgumentException failure)
            {
                return (other, null, $"{address}: {failure.Message}");
            }
            catch (RpcException failure) when (!cancellationToken.IsCancellationRequested)
            {
                // The other node may be opening or closing its port at this moment.
                if (attempt == AttemptsMax || failure.StatusCode != StatusCode.Unavailable)
                    return (other, null, $"{address}: {failure.Status.Detail}");
                await Task.Delay(TimeSpan.FromMilliseconds(200), cancellationToken).ConfigureAwait(false);
            }
        }
    }

    private async Task PutRecordsAsync(ICoordinator store, RecoveryPlan plan, CoordinatorList held, CoordinatorGuard guard, CancellationToken cancellationToken)
    {
        var puts = plan.Shards.Select(shard => (Key: keys.Shard(shard.Record.ShardId), Value: RecordText.Format(shard.Record)))
            .Concat(plan.Starts.Select(starts => (Key: keys.Starts(starts.Key), Value: RecordText.Format(starts.Value)))).ToList();
        Puts(log, plan.Number, plan.Shards.Count, plan.Starts.Count);
        // The planned shards have all keys. Others were left by a creation of a second cluster that ended early, and no node reads a map that has one of them.
        var strays = held.Entries.Where(entry => CoordinatorKeys.TryParseId(entry.Key, keys.Shards, out _))
            .ExceptBy(puts.Select(static put => put.Key), static entry => entry.Key, StringComparer.Ordinal).ToList();
        foreach (var stray in strays)
            await store.CompareAndSetAsync(stray.Key, stray.ModRevision, null, 0, guard, cancellationToken).ConfigureAwait(false);
        var revisions = held.Entries.ToDictionary(static entry => entry.Key, static entry => entry.ModRevision, StringComparer.Ordinal);
        await Parallel.ForEachAsync(
            puts, new ParallelOptions { MaxDegreeOfParallelism = PutsAtOnce, CancellationToken = cancellationToken }, async (put, stop) =>
            {
                var set = await store.SetUntilSettledAsync(put.Key, revisions.GetValueOrDefault(put.Key), put.Value, 0, guard, stop).ConfigureAwait(false);
                if (set.Outcome != SetOutcome.Won)
                    throw new RecoveryEndedException($"somebody else changed {put.Key} meanwhile");
            }).ConfigureAwait(false);
        var now = (await store.ListAsync(keys.Root, cancellationToken).ConfigureAwait(false)).Entries
            .ToDictionary(static entry => entry.Key, static entry => entry.Value, StringComparer.Ordinal);
        if (puts.Where(put => now.GetValueOrDefault(put.Key) != put.Value).Select(static put => put.Key)
                .Concat(strays.Where(stray => now.ContainsKey(stray.Key)).Select(static stray => stray.Key)).FirstOrDefault() is { } changed)
            throw new RecoveryEndedException($"somebody else changed {changed} meanwhile");
    }

    // The nodes follow from here on. The guard makes sure that nobody has begun another recovery since the records were put, who would have put others in their
    // places.
    private async Task PutClusterAsync(ICoordinator store, RecoveryPlan plan, CoordinatorList held, CoordinatorGuard guard, CancellationToken cancellationToken)
    {
        try
        {
            var set = await store.SetUntilSettledAsync(
                keys.Cluster, RevisionOf(held, keys.Cluster), RecordText.Format(plan.Cluster!), 0, guard, cancellationToken).ConfigureAwait(false);
            if (set.Outcome != SetOutcome.Won)
                throw new RecoveryEndedException($"somebody else changed {keys.Cluster} meanwhile", mayBeComplete: true);
        }
        catch (Exception failure) when (failure is CoordinatorUnavailableException or CoordinatorAlarmException or OperationCanceledException)
        {
            throw new RecoveryEndedException(WhyEnded(failure), mayBeComplete: true);
        }
        Done(log, plan.Number);
    }

    private static string WhyEnded(Exception failure) => failure switch
    {
        CoordinatorGuardException => "somebody else has begun to rebuild the records",
        StorageIoException => $"this node could not note on its disk that it reports: {failure.Message}",
        // A call that the limit has cancelled ends with its status.
        OperationCanceledException or RpcException => $"it took more than {CompleteTimeMax.TotalMinutes:0} minutes, or the coordinator did not answer",
        _ => failure.Message,
    };

    private static long RevisionOf(CoordinatorList held, string key) => held.Entries.FirstOrDefault(entry => entry.Key == key).ModRevision;

    // Releases all nodes that were asked, also those whose answers were lost or late. A node that this does not reach is released when its promise expires, or
    // by the next recovery.
    private Task ReleaseAsync(Dictionary<NodeId, string> asked, RecoveryClaim claim) =>
        Task.WhenAll(asked.Select(one => ReleaseAsync(one.Key, one.Value, claim)));

    private async Task ReleaseAsync(NodeId other, string address, RecoveryClaim claim)
    {
        try
        {
            if (other == node)
            {
                ownRelease(claim);
                return;
            }

            using var channel = channelTo(other, address);
            await new Internal.V1.Recovery.RecoveryClient(channel.Calls())
                .ReleaseAsync(new BindRequest { Node = node.Value, Claim = claim }, deadline: DateTime.UtcNow + ReleaseTimeMax).ConfigureAwait(false);
        }
        catch (Exception failure) when (failure is RpcException or ArgumentException or StorageIoException)
        {
            NotReleased(log, other, failure.Message);
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

    [LoggerMessage(47, LogLevel.Warning, "Recovery {Recovery} of the coordinator's records begins: {Shards} shards and the starts of {Nodes} nodes are put. "
        + "No node follows them before the cluster's record")]
    private static partial void Puts(ILogger log, ulong recovery, int shards, int nodes);

    [LoggerMessage(51, LogLevel.Warning, "Node {Node} was not told that the recovery has ended. If it has reported for it, it acts on no record of a shard "
        + "until the next one, or for ten minutes: {Reason}")]
    private static partial void NotReleased(ILogger log, NodeId node, string reason);

    [LoggerMessage(48, LogLevel.Warning, "Recovery {Recovery} of the coordinator's records is complete")]
    private static partial void Done(ILogger log, ulong recovery);
}

/// <summary>A recovery ended after its claim was put, perhaps after some records. The next one replaces them.</summary>
/// <param name="reason">Why.</param>
/// <param name="mayBeComplete">Whether the cluster's record may have been put, so that the nodes follow. Otherwise nobody follows what was put.</param>
internal sealed class RecoveryEndedException(string reason, bool mayBeComplete = false) : Exception(reason)
{
    public bool MayBeComplete => mayBeComplete;
}
