using KvCluster.Internal.V1;
using KvCluster.Node.Map;
using KvCluster.Node.Runtime;
using KvCluster.Storage.Files;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Hosting;

/// <summary>
/// Keeps the nodes of the cluster on this node's disk, as they register and leave. Who rebuilds the coordinator's records asks them, and finds old copies of
/// their directories by their incarnations. Runs on the thread pool until disposed.
/// </summary>
internal sealed class KnownNodes : IAsyncDisposable
{
    /// <summary>Several nodes that register at about the same time are written once.</summary>
    private static readonly TimeSpan Pause = TimeSpan.FromMilliseconds(100);

    private readonly ShardDirectory _map;
    private readonly KnownRecords _known;
    private readonly ILogger _log;
    private readonly BackgroundLoop _loop;

    /// <param name="map">The registered nodes.</param>
    /// <param name="known">Where they are kept.</param>
    /// <param name="log">Receives why they could not be written.</param>
    public KnownNodes(ShardDirectory map, KnownRecords known, ILogger log)
    {
        (_map, _known, _log) = (map, known, log);
        _loop = new BackgroundLoop("the copy of the nodes' records", FollowAsync, static () => Pause, TimeProvider.System, log);
    }

    public ValueTask DisposeAsync() => _loop.DisposeAsync();

    private async Task FollowAsync(CancellationToken cancellationToken)
    {
        var snapshot = _map.Snapshot;
        try
        {
            if (!snapshot.Records.IsEmpty)
                _known.Keep(NodesOf(snapshot, _known.Nodes));
        }
        catch (StorageIoException failure)
        {
            HostLog.NodesNotKept(_log, failure.Message);
        }
        await snapshot.Replaced.WaitAsync(cancellationToken).ConfigureAwait(false);
    }

    // A node that was away since this process started is in no snapshot, but is a part of the cluster as long as it has a replica.
    private static IReadOnlyList<NodeRecord> NodesOf(ShardDirectorySnapshot snapshot, IReadOnlyList<NodeRecord> before)
    {
        var placed = snapshot.Records.Values.SelectMany(static entry => entry.Record.Replicas).Select(static replica => replica.NodeId).ToHashSet();
        var away = before.Where(node => !snapshot.Nodes.ContainsKey(node.NodeId) && placed.Contains(node.NodeId));
        return [.. snapshot.Nodes.Values.Concat(away).OrderBy(static node => node.Node)];
    }
}
