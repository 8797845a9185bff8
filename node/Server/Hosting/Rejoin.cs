// A node that starts without its newest data directory: with an old copy, or with an empty one. Used while a node starts, by one task; the
// coordinator's and the other nodes' answers decide, and where they do not tell, the answer is no.
using System.Collections.Concurrent;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Node.Coordination;
using KvCluster.V1;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Hosting;

/// <summary>Decides whether such a node may go on as one whose disk was lost, and sets aside what an old copy holds.</summary>
/// <param name="node">The node.</param>
/// <param name="coordinator">Counts starts, knows who runs and where the replicas lie.</param>
/// <param name="keys">The cluster's.</param>
/// <param name="channelTo">A connection to a node at an address, for this to dispose.</param>
/// <param name="patience">How long what is in the way may take to pass: another process' registration ends, the other nodes start.</param>
/// <param name="log">One line when a copy is set aside.</param>
internal sealed class Rejoin(uint node, ICoordinator coordinator, CoordinatorKeys keys, Func<uint, string, GrpcChannel> channelTo, TimeSpan patience, ILogger log)
{
    private const int CallsMax = 16;

    private static readonly TimeSpan CallTimeMax = TimeSpan.FromSeconds(5);

    private long _waitsSince;

    /// <summary>Whether a directory is not the one that its node was started with last.</summary>
    /// <param name="starts">How often the directory was started.</param>
    /// <param name="counted">What the coordinator counted of the node.</param>
    public static bool IsBehind(ulong starts, ulong counted) => starts < counted;

    /// <summary>
    /// Of a directory that is behind: sets aside what it holds, so that the node goes on as one that lost its disk. Nothing was changed unless it is
    /// done; after a crash in the middle the directory is behind as before, and the next start does the rest.
    /// </summary>
    /// <returns>Null: done. Otherwise what is in the way, for the caller to try again soon.</returns>
    /// <exception cref="StaleDirectoryException">It was in the way for too long.</exception>
    /// <exception cref="CoordinatorUnavailableException">No answer.</exception>
    public async Task<string?> TryAsync(NodeDirectory directory, ulong counted, CancellationToken cancellationToken)
    {
        var holds = directory.ListShards();
        var isEmpty = directory.Starts == 0 && holds.Count == 0;
        if (await WhyNotAsync(holds, isEmpty, cancellationToken).ConfigureAwait(false) is { } reason)
        {
            _waitsSince = _waitsSince == 0 ? Environment.TickCount64 : _waitsSince;
            return Environment.TickCount64 - _waitsSince < patience.TotalMilliseconds
                ? $"its folder is not the newest, and {reason}"
                : throw new StaleDirectoryException(directory.Location, directory.Starts, counted, reason);
        }
        if (isEmpty)
            return null;
        foreach (var shard in holds)
            directory.SetAside(shard);
        HostLog.SetAsideOldCopy(log, directory.Location, directory.Starts, counted, holds.Count, directory.AsidePath);
        return null;
    }

    private async Task<string?> WhyNotAsync(IReadOnlyCollection<uint> holds, bool isEmpty, CancellationToken cancellationToken)
    {
        var list = await coordinator.ListAsync(keys.Root, cancellationToken).ConfigureAwait(false);
        var nodes = Parse<NodeRecord>(list, keys.Nodes).ToDictionary(static found => found.Node);
        if (nodes.TryGetValue(node, out var running))
            return $"node {node} is registered at {running.Address}: its process may run, or did until some seconds ago";
        if (isEmpty)
            return null;
        var shards = Parse<ShardRecord>(list, keys.Shards).ToDictionary(static record => record.Shard);
        foreach (var shard in holds)
        {
            if (!shards.ContainsKey(shard))
                return $"the coordinator has no record of shard {shard}, of which the folder holds a replica";
        }
        return await WhyNeededAsync([.. shards.Values.Where(record => holds.Contains(record.Shard) || record.Replicas.Any(replica => replica.Node == node))], nodes, cancellationToken)
            .ConfigureAwait(false);
    }

    // A read by the leader that a majority confirms after it was sent: so a majority without this node has all that was acknowledged.
    private async Task<string?> WhyNeededAsync(IReadOnlyCollection<ShardRecord> shards, IReadOnlyDictionary<uint, NodeRecord> nodes, CancellationToken cancellationToken)
    {
        var channels = new Dictionary<uint, GrpcChannel>();
        try
        {
            var reads = new List<(ShardRecord Record, uint Leader)>();
            foreach (var record in shards)
            {
                var leader = record.Replicas.FirstOrDefault(replica => replica.Replica == record.Leader)?.Node ?? 0;
                if (record.Replicas.All(replica => replica.Node == node))
                    return $"shard {record.Shard} has no replica on another node";
                if (leader == 0 || leader == node)
                    return $"shard {record.Shard} has no leader on another node";
                if (!nodes.TryGetValue(leader, out var found))
                    return $"node {leader}, which led shard {record.Shard} last, does not run";
                if (!channels.ContainsKey(leader))
                    channels.Add(leader, channelTo(leader, found.Address));
                reads.Add((record, leader));
            }
            var reasons = new ConcurrentQueue<string>();
            await Parallel.ForEachAsync(reads, new ParallelOptions { MaxDegreeOfParallelism = CallsMax, CancellationToken = cancellationToken }, async (read, stop) =>
            {
                if (reasons.IsEmpty && await WhyNotReadAsync(read.Record, channels[read.Leader], stop).ConfigureAwait(false) is { } reason)
                    reasons.Enqueue($"shard {read.Record.Shard} is not served by its other nodes (node {read.Leader}: {reason})");
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
        // The least key of the shard: there is no empty one.
        var key = record.Start.IsEmpty ? Google.Protobuf.ByteString.CopyFrom(0) : record.Start;
        try
        {
            var request = new GetRequest { Key = key, Read = new ReadOptions { Mode = ReadMode.Quorum } };
            await new Kv.KvClient(channel).GetAsync(request, deadline: DateTime.UtcNow + CallTimeMax, cancellationToken: cancellationToken).ConfigureAwait(false);
            return null;
        }
        catch (RpcException failure) when (!cancellationToken.IsCancellationRequested)
        {
            return failure.Status.Detail;
        }
    }

    private static IEnumerable<T> Parse<T>(CoordinatorList list, string prefix) where T : Google.Protobuf.IMessage<T>, new() =>
        list.Entries.Where(entry => entry.Value is not null && CoordinatorKeys.TryParseId(entry.Key, prefix, out _)).Select(static entry => RecordText.Parse<T>(entry.Value!));
}
