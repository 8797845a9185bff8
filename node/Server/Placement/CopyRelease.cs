// Deletes copies of replicas that were set aside, when a replica of this node cannot be rebuilt because its disk lacks space (F54). A damaged replica stays in
// aside/{shard} while its successor is built from the peers, so a rebuild takes the shard's space twice. Where that is not there, the copy gives way; but the
// copy may have the newest data there is, so it does only when it is certain that nobody can miss it.
//
// Who decides: the node that has the copy, from what all the others say. It decides anew for each copy, and only while a replica here lacks space.
//
//   1. The copy's newest record is read from its journal, prepared records included (CopyExtent). If it cannot be determined, the copy stays.
//   2. The copy is of this cluster and lineage. The shard's record, read afresh from the coordinator, lists its replica as removed, and is not older than what
//      the
//      replica had seen (CopyRules.WhyKept).
//   3. The nodes of all voters are asked. If one of them, or this one, does not trust the coordinator (its revision went backwards, F11; a record was read that
//      is
//      older than a replica here, F41), the copy stays. One that does not answer counts for nothing, unless it leads the shard.
//   4. The shard's leader confirms by a round of heartbeats, sent after the question, that it leads, so that what it has committed is on a majority of the
//      voters.
//      The copy's replica is none of them. That reaches to the copy's newest record or beyond, the leader's record is the coordinator's, and a comparison of
//      digests in the leader's epoch has found the trees of a majority equal there or later (CopyRules.WhyNotHeld). So a majority has everything that was ever
//      committed of what the copy has, and the rest of the copy can never be committed any more: whoever leads next leads from a journal at least as new.
//
// Both facts last, so nothing is held while the copy is deleted: what is committed stays committed, and a removed replica is never named again. In what order
// things become durable, and what a crash leaves, is in AsideCopies: a copy is deleted only after its new name, which says that this was decided, is durable. A
// crash before that decides anew. One copy is deleted at a time, those of the shards that lack space first; the next one only if space is found to be lacking
// again.
//
// While a replica lacks space its disk counts as full (kvcluster.node.replicas.impaired), an alarm says what can be freed and why this node does not, and the
// leader offers the snapshot again every few seconds. An operator may delete any copy with `kv-node aside remove`, also while the node runs.
using System.Collections.Concurrent;
using System.Globalization;
using Grpc.Core;
using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;
using KvCluster.Node.Hosting;
using KvCluster.Node.Map;
using KvCluster.Node.Runtime;
using KvCluster.Node.Shards.Disk;
using KvCluster.Node.Telemetry;
using KvCluster.Node.Transport;
using KvCluster.Replication.Log;
using KvCluster.ServiceDefaults.Logs;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Inspection;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Placement;

/// <summary>Frees the space of copies that nobody can miss, while a replica of this node cannot be rebuilt without it. One loop on the thread pool.</summary>
internal sealed class CopyRelease : IAsyncDisposable
{
    /// <summary>A snapshot that found no space is offered again after five seconds.</summary>
    private static readonly TimeSpan Interval = TimeSpan.FromSeconds(2);

    /// <summary>Longer than a node waits for the coordinator and its voters before it answers.</summary>
    private static readonly TimeSpan AnswerTimeMax = TimeSpan.FromSeconds(5);

    private readonly NodeIdentity _identity;
    private readonly AsideCopies _copies;
    private readonly string _dataDirectory;
    private readonly ShardDirectory _map;
    private readonly ShardHost _shards;
    private readonly PeerTransport _peers;
    private readonly CopyWitness _witness;
    private readonly ICoordinator _coordinator;
    private readonly CoordinatorKeys _keys;
    private readonly NodeMetrics _metrics;
    private readonly ILogger _log;
    private readonly BackgroundLoop _loop;
    private readonly OncePerReason<ShardId> _said = new();
    private readonly OncePerReason _tidying = new();

    /// <summary>Why copies are kept, by name. Read by any thread.</summary>
    private readonly ConcurrentDictionary<string, string> _kept = new();

    // These two are used by the loop only. What was read of a copy is kept, because a copy does not change here and its whole journal has to be read.
    private readonly Dictionary<string, CopyExtent> _extents = [];
    private HashSet<ShardId> _lacking = [];
    private HashSet<RoomLack> _answered = [];
    private bool _isTidy;

    /// <param name="identity">This node.</param>
    /// <param name="directory">Has the copies.</param>
    /// <param name="map">The nodes' addresses.</param>
    /// <param name="shards">The replicas of this node.</param>
    /// <param name="peers">Connections to the voters' nodes.</param>
    /// <param name="witness">What this node itself says.</param>
    /// <param name="coordinator">Provides the shards' records.</param>
    /// <param name="metrics">Counts alarms.</param>
    /// <param name="log">Receives one line per decision.</param>
    public CopyRelease(
        NodeIdentity identity, NodeDirectory directory, ShardDirectory map, ShardHost shards, PeerTransport peers, CopyWitness witness,
        ICoordinator coordinator, NodeMetrics metrics, ILogger log)
    {
        _identity = identity;
        _copies = directory.Aside;
        _dataDirectory = directory.Location;
        _map = map;
        _shards = shards;
        _peers = peers;
        _witness = witness;
        _coordinator = coordinator;
        _keys = new CoordinatorKeys(identity.Cluster);
        _metrics = metrics;
        _log = log;
        _loop = new BackgroundLoop(
            "the space of copies that were set aside", TakeTurnAsync, static () => CommonMoments.Until(Interval), shards.Threads.Timers, log);
    }

    /// <summary>The copies, their sizes, and, while space is lacking, why each was not deleted; otherwise that is empty. Any thread.</summary>
    /// <exception cref="IOException">The disk cannot be read, or somebody deletes them at the moment.</exception>
    public IReadOnlyList<(AsideCopy Copy, long Bytes, string Kept)> Describe() =>
        [.. _copies.List().Select(copy => (copy, AsideCopies.BytesOf(copy), _kept.GetValueOrDefault(copy.Name, "")))];

    public ValueTask DisposeAsync() => _loop.DisposeAsync();

    private async Task TakeTurnAsync(CancellationToken stop)
    {
        TidyOnce();
        var lacking = new List<(ShardId Shard, RoomLack Lack)>();
        foreach (var shard in _shards.All)
        {
            if (shard.LacksRoom is { } lack)
                lacking.Add((shard.Shard, lack));
        }
        foreach (var ended in _lacking.Except(lacking.Select(static shard => shard.Shard)))
            _said.Forget(ended);
        _lacking = [.. lacking.Select(static shard => shard.Shard)];
        if (lacking.Count == 0)
        {
            _kept.Clear();
            _extents.Clear();
            _answered = [];
            return;
        }
        // A copy was deleted because of these lacks, and its space may be enough for all of them. A replica that still lacks space reports that within seconds.
        if (lacking.TrueForAll(shard => _answered.Contains(shard.Lack)))
            return;
        try
        {
            if (await ReleaseOneAsync(stop).ConfigureAwait(false))
                _answered = [.. lacking.Select(static shard => shard.Lack)];
            else
                Alarm(lacking, Advice());
        }
        catch (Exception failure) when (failure is IOException or UnauthorizedAccessException)
        {
            // Retried in the next turn.
            Alarm(lacking, $"Copies that were set aside cannot be freed: {failure.Message}");
        }
    }

    // Deletes what a crash of this process or of an operator's command has left. Called until it succeeds.
    private void TidyOnce()
    {
        if (_isTidy)
            return;
        try
        {
            _copies.Tidy();
            _isTidy = true;
        }
        catch (Exception failure) when (failure is IOException or UnauthorizedAccessException)
        {
            if (_tidying.MaySay(failure.Message))
                PlacementLog.CopiesNotTidied(_log, failure.Message);
        }
    }

    private async Task<bool> ReleaseOneAsync(CancellationToken stop)
    {
        foreach (var copy in _copies.List().OrderByDescending(copy => _lacking.Contains(copy.Shard)))
        {
            if (!_extents.TryGetValue(copy.Name, out var extent))
                _extents[copy.Name] = extent = CopyExtent.Read(LocalDisk.Instance, copy.Path);
            var (why, testimony) = await JudgeAsync(copy, extent, stop).ConfigureAwait(false);
            if (why is null && Release(copy, extent, testimony!))
                return true;
            _kept[copy.Name] = why ?? "another copy took its place meanwhile";
        }
        return false;
    }

    private bool Release(AsideCopy copy, CopyExtent extent, CopyTestimony testimony)
    {
        _extents.Remove(copy.Name);
        _kept.TryRemove(copy.Name, out _);
        var bytes = AsideCopies.BytesOf(copy);
        // Said before it is done: after a crash in between nobody else could tell why the copy is gone.
        PlacementLog.CopyReleased(
            _log, copy.Shard, copy.Name, bytes, extent.Replica, EtagText.Of(extent.Newest!.Value),
            EtagText.Of(testimony.Committed), testimony.Epoch, EtagText.Of(testimony.Compared));
        return _copies.TryRelease(copy, extent.Replica);
    }

    private async Task<(string? Why, CopyTestimony? Testimony)> JudgeAsync(AsideCopy copy, CopyExtent extent, CancellationToken stop)
    {
        if (_shards.RecordAlarm is { } alarm)
            return ($"an alarm stands: {alarm}", null);
        try
        {
            var read = await _coordinator.GetAsync(_keys.Shard(copy.Shard), stop).ConfigureAwait(false);
            if (read.Value is null)
                return ("the coordinator has no record of its shard", null);
            var record = RecordText.Parse<ShardRecord>(read.Value);
            return CopyRules.WhyKept(extent, copy.Shard, _identity, record, read.ModRevision) is { } why
                ? (why, null)
                : await AskAsync(record, extent.Replica, extent.Newest!.Value, stop).ConfigureAwait(false);
        }
        catch (CoordinatorAlarmException failure)
        {
            return ($"an alarm stands: {failure.Message}", null);
        }
        catch (Exception failure) when (failure is CoordinatorUnavailableException or CoordinatorRecordException)
        {
            return ($"the coordinator does not tell: {failure.Message}", null);
        }
    }

    private async Task<(string? Why, CopyTestimony? Testimony)> AskAsync(ShardRecord record, ReplicaId replica, Etag newest, CancellationToken stop)
    {
        var leader = record.Replicas.FirstOrDefault(voter => voter.ReplicaId == record.LeaderId)?.NodeId ?? NodeId.None;
        if (leader.IsNone)
            return ("its shard has no leader", null);
        var nodes = record.Replicas.Where(static voter => !voter.Learner).Select(static voter => voter.NodeId).Append(leader).Distinct().ToList();
        var answers = await Task.WhenAll(nodes.Select(
            async node => (Node: node, Said: await AskAsync(node, record.ShardId, replica, newest, stop).ConfigureAwait(false)))).ConfigureAwait(false);
        foreach (var (node, said) in answers)
        {
            if (said.Alarm is { } alarm)
                return ($"an alarm stands at node {node}: {alarm}", null);
        }
        var testimony = answers.Single(answer => answer.Node == leader).Said;
        return (testimony.Refusal, testimony);
    }

    private async Task<CopyTestimony> AskAsync(NodeId node, ShardId shard, ReplicaId replica, Etag newest, CancellationToken stop)
    {
        if (node == _identity.Node)
            return await _witness.TestifyAsync(shard, replica, newest, stop).ConfigureAwait(false);
        if (!_map.Snapshot.Nodes.TryGetValue(node, out var there))
            return new CopyTestimony(null, $"node {node}, which leads its shard, is not running");
        try
        {
            using var channel = _peers.ChannelTo(node, there.PeerAddress);
            var request = new HoldsCopyRequest { Node = _identity.Node.Value, Shard = shard.Value, Replica = replica.Value, Newest = newest.ToWire() };
            var answer = await new Internal.V1.Placement.PlacementClient(channel.Calls())
                .HoldsCopyAsync(request, deadline: DateTime.UtcNow + AnswerTimeMax, cancellationToken: stop).ConfigureAwait(false);
            var refusal = answer.Holds == HoldsCopyResponse.Types.Holds.All ? null
                : answer.Refusal.Length > 0 ? answer.Refusal
                : $"node {node}, which leads its shard, does not say that a majority has all of it";
            return new CopyTestimony(
                answer.Alarm.Length == 0 ? null : answer.Alarm,
                refusal) { Epoch = answer.Epoch, Committed = answer.Committed.FromWire(), Compared = answer.Compared.FromWire() };
        }
        catch (Exception failure) when (failure is RpcException or ArgumentException or UriFormatException && !stop.IsCancellationRequested)
        {
            return new CopyTestimony(null, $"node {node}, which leads its shard, does not answer: "
                + $"{(failure is RpcException { Status.Detail: var detail } ? detail : failure.Message)}");
        }
    }

    // Logged once for each state of the copies. What the snapshot needs, and how much is free, changes all the time.
    private void Alarm(IEnumerable<(ShardId Shard, RoomLack Lack)> lacking, string advice)
    {
        foreach (var (shard, lack) in lacking)
        {
            if (!_said.MaySay(shard, advice))
                continue;
            PlacementLog.RebuildLacksRoom(_log, shard, lack.Reason.TrimEnd('.'), advice);
            _metrics.Alarmed();
        }
    }

    private string Advice()
    {
        var copies = Describe();
        return copies.Count == 0
            ? $"Nothing was set aside in '{_copies.Location}': enlarge the volume, or delete what else is on it"
            : $"Enlarge the volume, or delete what nobody needs: {string.Join("; ", copies.Select(copy => Advice(copy.Copy, copy.Bytes, copy.Kept)))}";
    }

    private string Advice(AsideCopy copy, long bytes, string kept) => string.Create(
        CultureInfo.InvariantCulture, $"'{copy.Path}' ({bytes / 1e6:N0} MB) with `kv-node aside remove {_dataDirectory} {copy.Name}`, which this node keeps "
            + $"because {(kept.Length == 0 ? "it has not judged it yet" : kept)}");
}
