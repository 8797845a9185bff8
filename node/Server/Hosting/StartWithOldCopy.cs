// Handles a node that starts without its newest data directory, with an old copy or an empty one. Used while a node starts, by one task. The
// answers of the coordinator and the other nodes decide; without a clear answer the decision is no.
using System.Collections.Concurrent;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;
using KvCluster.V1;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Hosting;

/// <summary>Decides whether such a node may continue as one whose disk was lost, and sets the contents of an old copy aside.</summary>
/// <param name="node">The node.</param>
/// <param name="coordinator">Provides the number of starts, the registered nodes and the location of replicas.</param>
/// <param name="keys">The cluster's keys.</param>
/// <param name="channelTo">Creates a connection to a node at an address; disposed by this class.</param>
/// <param name="patience">How long to wait until the obstacles pass: another process's registration ends, the other nodes start.</param>
/// <param name="log">Receives one line when a copy is set aside.</param>
internal sealed class StartWithOldCopy(
    NodeId node, ICoordinator coordinator, CoordinatorKeys keys, Func<NodeId, string, GrpcChannel> channelTo, TimeSpan patience, ILogger log)
{
    private const int CallsMax = 16;

    private static readonly TimeSpan CallTimeMax = TimeSpan.FromSeconds(5);

    private long _waitsSince;

    /// <summary>
    /// Sets the contents of an old copy aside, so that the node continues as one that lost its disk. Nothing is changed unless all conditions hold. After a
    /// crash in the middle the directory is still an old copy, and the next start completes the work.
    /// </summary>
    /// <param name="directory">A directory for which <see cref="DirectoryStarts.IsOldCopy"/> is true.</param>
    /// <param name="counted">The coordinator's record of the last start.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <returns>Null if done. Otherwise the obstacle; the caller should retry soon.</returns>
    /// <exception cref="StaleDirectoryException">The obstacle did not pass in time.</exception>
    /// <exception cref="CoordinatorUnavailableException">No answer.</exception>
    public async Task<string?> TryAsync(NodeDirectory directory, NodeStarts counted, CancellationToken cancellationToken)
    {
        var holds = directory.ListShards();
        var isEmpty = directory.Starts == DirectoryStarts.None && holds.Count == 0;
        if (await WhyNotAsync(holds, isEmpty, cancellationToken).ConfigureAwait(false) is { } reason)
        {
            _waitsSince = _waitsSince == 0 ? Environment.TickCount64 : _waitsSince;
            return Environment.TickCount64 - _waitsSince < patience.TotalMilliseconds
                ? $"its directory is not the newest, and {reason}"
                : throw new StaleDirectoryException(directory.Location, directory.Starts, counted, reason);
        }
        if (isEmpty)
            return null;
        foreach (var shard in holds)
            directory.SetAside(shard);
        HostLog.SetAsideOldCopy(
            log, directory.Location, DirectoryStarts.TextOf(directory.Starts.Put), DirectoryStarts.TextOf(counted), holds.Count, directory.AsidePath);
        return null;
    }

    private async Task<string?> WhyNotAsync(IReadOnlyCollection<ShardId> holds, bool isEmpty, CancellationToken cancellationToken)
    {
        var list = await coordinator.ListAsync(keys.Root, cancellationToken).ConfigureAwait(false);
        var nodes = Parse<NodeRecord>(list, keys.Nodes).ToDictionary(static found => found.NodeId);
        if (nodes.TryGetValue(node, out var running))
            return $"node {node} is registered at {running.Address}: its process may be running, or was until a few seconds ago";
        if (isEmpty)
            return null;
        var shards = Parse<ShardRecord>(list, keys.Shards).ToDictionary(static record => record.ShardId);
        foreach (var shard in holds)
        {
            if (!shards.ContainsKey(shard))
                return $"the coordinator has no record of shard {shard}, of which the directory holds a replica";
        }
        return await WhyNeededAsync(
            [.. shards.Values.Where(record => holds.Contains(record.ShardId) || record.Replicas.Any(replica => replica.NodeId == node))], nodes,
            cancellationToken)
            .ConfigureAwait(false);
    }

    // A read at the leader that a majority confirms after it was sent. So a majority without this node has everything that was acknowledged.
    private async Task<string?> WhyNeededAsync(
        IReadOnlyCollection<ShardRecord> shards, IReadOnlyDictionary<NodeId, NodeRecord> nodes, CancellationToken cancellationToken)
    {
        var channels = new Dictionary<NodeId, GrpcChannel>();
        try
        {
            var reads = new List<(ShardRecord Record, NodeId Leader)>();
            foreach (var record in shards)
            {
                var leader = record.Replicas.FirstOrDefault(replica => replica.ReplicaId == record.LeaderId)?.NodeId ?? NodeId.None;
                if (record.Replicas.All(replica => replica.NodeId == node))
                    return $"shard {record.ShardId} has no replica on another node";
                if (leader.IsNone || leader == node)
                    return $"shard {record.ShardId} has no leader on another node";
                if (!nodes.TryGetValue(leader, out var found))
                    return $"node {leader}, which led shard {record.ShardId} last, is not running";
                if (!channels.ContainsKey(leader))
                    channels.Add(leader, channelTo(leader, found.Address));
                reads.Add((record, leader));
            }
            var reasons = new ConcurrentQueue<string>();
            await Parallel.ForEachAsync(
                reads, new ParallelOptions { MaxDegreeOfParallelism = CallsMax, CancellationToken = cancellationToken }, async (read, stop) =>
                {
                    if (reasons.IsEmpty && await WhyNotReadAsync(read.Record, channels[read.Leader], stop).ConfigureAwait(false) is { } reason)
                        reasons.Enqueue($"shard {read.Record.ShardId} is not served by its other nodes (node {read.Leader}: {reason})");
                }).ConfigureAwait(false);
            return reasons.TryPeek(out var first) ? first : null;
        }
        catch (ArgumentException failure)
        {
            return $"a leader cannot be asked: {failure.Message}";
        }
        finally
        {
            foreach (var channel in channels.Values)
                channel.Dispose();
        }
    }

    private static async Task<string?> WhyNotReadAsync(ShardRecord record, GrpcChannel channel, CancellationToken cancellationToken)
    {
        // The least key of the shard; a key is never empty.
        var key = record.Start.IsEmpty ? Google.Protobuf.ByteString.CopyFrom(0) : record.Start;
        try
        {
            var request = new GetRequest { Key = key, Read = new ReadOptions { Mode = ReadMode.Quorum } };
            await new Kv.KvClient(channel.Calls())
                .GetAsync(request, deadline: DateTime.UtcNow + CallTimeMax, cancellationToken: cancellationToken).ConfigureAwait(false);
            return null;
        }
        catch (RpcException failure) when (!cancellationToken.IsCancellationRequested)
        {
            return failure.Status.Detail;
        }
    }

    private static IEnumerable<T> Parse<T>(CoordinatorList list, string prefix) where T : Google.Protobuf.IMessage<T>, new() =>
        list.Entries.Where(entry => entry.Value is not null && CoordinatorKeys.TryParseId(entry.Key, prefix, out _))
            .Select(static entry => RecordText.Parse<T>(entry.Value!));
}
