using System.Net.Security;
using System.Security.Cryptography.X509Certificates;
using Etcdserverpb;
using Grpc.Net.Client;

namespace KvCluster.Node.Coordination;

/// <summary>One member of etcd and the calls to it. Thread-safe.</summary>
internal sealed class EtcdEndpoint : IDisposable
{
    // All shards' records come in one answer: 200,000 of them fit.
    private const int AnswerBytesMax = 256 << 20;

    private readonly GrpcChannel _channel;

    /// <param name="connectTime">For a connection, TLS included.</param>
    public EtcdEndpoint(string address, SslClientAuthenticationOptions security, TimeSpan connectTime)
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
                SslOptions = security,
                // A member that is stopped or cut off keeps its connections; a watch there must notice.
                KeepAlivePingDelay = TimeSpan.FromSeconds(5),
                KeepAlivePingTimeout = TimeSpan.FromSeconds(5),
                KeepAlivePingPolicy = HttpKeepAlivePingPolicy.WithActiveRequests,
            },
        });
        Kv = new KV.KVClient(_channel);
        Watch = new Watch.WatchClient(_channel);
        Lease = new Lease.LeaseClient(_channel);
        Auth = new Auth.AuthClient(_channel);
    }

    public string Address { get; }

    public KV.KVClient Kv { get; }

    public Watch.WatchClient Watch { get; }

    public Lease.LeaseClient Lease { get; }

    public Auth.AuthClient Auth { get; }

    /// <summary>Reads the files that the options name; the endpoints share what comes of it.</summary>
    /// <exception cref="EtcdSecurityException">A file cannot be read or does not hold what it should.</exception>
    public static SslClientAuthenticationOptions SecurityOf(EtcdOptions options)
    {
        var security = new SslClientAuthenticationOptions();
        if (options.AuthorityFile is { } authorities)
        {
            security.CertificateChainPolicy = new X509ChainPolicy { TrustMode = X509ChainTrustMode.CustomRootTrust, RevocationMode = X509RevocationMode.NoCheck };
            Load(authorities, () => security.CertificateChainPolicy.CustomTrustStore.ImportFromPemFile(authorities));
            if (security.CertificateChainPolicy.CustomTrustStore.Count == 0)
                throw new EtcdSecurityException(authorities, "it holds no certificate");
        }
        if (options.CertificateFile is { } certificate)
        {
            var path = new X509Certificate2Collection();
            Load(certificate, () => path.ImportFromPemFile(certificate));
            Load(options.KeyFile ?? certificate, () => security.ClientCertificateContext =
                SslStreamCertificateContext.Create(X509Certificate2.CreateFromPemFile(certificate, options.KeyFile), path, offline: true));
        }
        return security;
    }

    public void Dispose() => _channel.Dispose();

    private static void Load(string file, Action load)
    {
        try
        {
            load();
        }
        catch (Exception failure) when (failure is IOException or UnauthorizedAccessException or System.Security.Cryptography.CryptographicException)
        {
            throw new EtcdSecurityException(file, failure.Message);
        }
    }
}
