using KvCluster.V1;

namespace KvCluster.Benchmarks.Cluster;

/// <summary>Unary clients of the leader, with the same number of connections as for every system.</summary>
internal sealed class LeaderChannels(KvServers servers) : IDisposable
{
    private Channels _channels = new(servers.LeaderAddress);
    private Kv.KvClient[]? _clients;

    public Kv.KvClient ClientOf(int caller)
    {
        _clients ??= _channels.Clients(channel => new Kv.KvClient(channel));
        return _clients[caller % _clients.Length];
    }

    /// <summary>Connects to the current leader. No call may be in progress.</summary>
    public async Task FollowAsync(CancellationToken cancellation)
    {
        await servers.FindLeaderAsync(cancellation);
        _channels.Dispose();
        (_channels, _clients) = (new Channels(servers.LeaderAddress), null);
    }

    public void Dispose() => _channels.Dispose();
}
