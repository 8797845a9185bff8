using Google.Protobuf;
using KvCluster.Disk;
using KvCluster.Internal.V1;
using KvCluster.Node.Api.Calls;
using KvCluster.Node.Api.Errors;
using KvCluster.Node.Api.Reads;
using KvCluster.Node.Api.Watches;
using KvCluster.Node.Hosting;
using KvCluster.Node.Shards;
using KvCluster.Node.Watching;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.Storage.Context;
using KvCluster.V1;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Simulation.Cluster.Routing;

/// <summary>
/// The watches of one process of a node: the real <see cref="KvWatches"/> over the real hubs, whose waits go on in the steps of the process's pool. A replica
/// that has not applied the position that is asked for is not waited for; its caller goes elsewhere, as it does when the wait is over.
/// </summary>
internal sealed class NodeWatches : IDisposable
{
    // A few steps of a reader, so that beginnings go on in several snapshots.
    private static readonly TimeSpan SnapshotAgeMax = TimeSpan.FromMilliseconds(40);

    private readonly ClusterRun _run;
    private readonly ClusterNode _node;
    private readonly ulong _process;
    private readonly KeptSnapshots _kept;
    private readonly WatchHubs _hubs;
    private readonly KvWatches _watches;

    public NodeWatches(ClusterRun run, ClusterNode node, StoreOptions options)
    {
        (_run, _node, _process) = (run, node, node.Process);
        _kept = new KeptSnapshots(node.Clock, SnapshotAgeMax);
        _hubs = new WatchHubs(options, node.Clock, NullLogger<WatchHubs>.Instance, node.Pool);
        // The replica is found here, and trees are read on the run's thread.
        var lookup = new ShardLookup(node.Id, shards: null!, hot: null!);
        _watches = new KvWatches(lookup, _hubs, new ReadThreads(int.MaxValue, threads: 0), new CallMemory(CallMemory.MebibytesMin), node.Clock, _kept);
    }

    /// <summary>Serves a stream until it ends.</summary>
    public async Task ServeAsync(WatchRequest request, RoutedWatchStream stream)
    {
        try
        {
            stream.End(await RunAsync(request, stream).ConfigureAwait(false));
        }
        catch (Exception failure) when (ApiErrors.Of(failure) is { } refusal)
        {
            stream.End(refusal);
        }
        catch (Exception failure)
            when (failure is SimulatedCrashException || _node.Process != _process || !_node.IsUp || _node.Disk.HasFailed || _node.Disk.IsDamaged)
        {
            // What a process meets at its end is told to nobody.
            stream.Break("connection reset");
        }
        catch (Exception failure)
        {
            _run.Throw(failure);
        }
    }

    public void Dispose()
    {
        _hubs.DisposeAsync().AsTask().Wait();
        _kept.Dispose();
    }

    private async Task<ApiError> RunAsync(WatchRequest request, RoutedWatchStream stream)
    {
        if (WatchQuery.TryRead(request.ToByteArray(), out var query) is { } refusal)
            return refusal;
        if (Find(query, out var record, out refusal) is not { } replica)
            return refusal!;
        var hosted = new HostedShard(record!, new(1), replica, failure: "", isLost: false);
        var position = query.AfterIn(replica.Shard)?.Etag ?? query.EntriesSentIn(replica.Shard)?.Sent.Etag;
        return position is { } after && !replica.Reads.HasApplied(after)
            ? ApiErrors.ReplicaBehind(hosted, after, _node.Id)
            : await _watches.WatchAsync(hosted, query, stream, stream.Gone).ConfigureAwait(false);
    }

    // As ShardLookup.FindForScan does.
    private ShardReplica? Find(WatchQuery query, out ShardRecord? record, out ApiError? refusal)
    {
        var route = _node.Map.Find(query.Range.Lower.Span);
        (var replica, record) = _node.Neighbour is { Replica: { } other } neighbour && route?.ShardId == other.Shard ? (other, neighbour.Record)
            : _node.Replica is { } own && route?.ShardId == own.Shard ? (own, _run.Coordinator.Record)
            : ((ShardReplica?)null, null);
        refusal = replica is null ? ApiErrors.WrongShard(route)
            : replica.Failure is { } failure ? ApiErrors.ReplicaFailed(replica.Route, failure.Message)
            : null;
        return refusal is null ? replica : null;
    }
}
