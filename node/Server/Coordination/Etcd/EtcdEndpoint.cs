// Of the package dotnet-etcd only what is generated from etcd's protocol is used, over a channel of ours. So each call is made once, to this member, a watch
// tells of a compaction, a keep-alive tells of a lease that has ended, and a new certificate is used from the next connection on. The package's own client
// does none of this (see DECISIONS.md).
using Etcdserverpb;
using Grpc.Net.Client;
using KvCluster.Tls;

namespace KvCluster.Node.Coordination.Etcd;

/// <summary>One member of etcd and the calls to it. Thread-safe.</summary>
internal sealed class EtcdEndpoint : IDisposable
{
    // All shards' records come in one answer; this is enough for 200,000 of them.
    private const int AnswerBytesMax = 256 << 20;

    private readonly GrpcChannel _channel;

    /// <param name="connectTime">Timeout of a connection, TLS included.</param>
    public EtcdEndpoint(string address, TlsConnector connector, TimeSpan connectTime)
    {
        Address = address;
        _channel = GrpcChannel.ForAddress(address, new GrpcChannelOptions
        {
            DisposeHttpClient = true,
            MaxReceiveMessageSize = AnswerBytesMax,
            HttpHandler = new SocketsHttpHandler
            {
                UseProxy = false,
                AllowAutoRedirect = false,
                ConnectTimeout = connectTime,
                ConnectCallback = connector.ConnectAsync,
                // Does not grow (see KvCluster.Node.csproj). A list of all shards has megabytes, and a member may be far away.
                InitialHttp2StreamWindowSize = 4 << 20,
                // A member that is stopped or cut off keeps its connections open. A watch there must notice.
                KeepAlivePingDelay = TimeSpan.FromSeconds(5),
                KeepAlivePingTimeout = TimeSpan.FromSeconds(5),
                KeepAlivePingPolicy = HttpKeepAlivePingPolicy.WithActiveRequests,
            },
        });
        var calls = _channel.Calls();
        Kv = new KV.KVClient(calls);
        Watch = new Watch.WatchClient(calls);
        Lease = new Lease.LeaseClient(calls);
        Auth = new Auth.AuthClient(calls);
        Maintenance = new Maintenance.MaintenanceClient(calls);
    }

    public string Address { get; }

    public KV.KVClient Kv { get; }

    public Watch.WatchClient Watch { get; }

    public Lease.LeaseClient Lease { get; }

    public Auth.AuthClient Auth { get; }

    public Maintenance.MaintenanceClient Maintenance { get; }

    public void Dispose() => _channel.Dispose();
}
