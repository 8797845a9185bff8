using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Cli.Doctor;
using KvCluster.Client;
using KvCluster.Internal.V1;
using KvCluster.Node;
using KvCluster.Node.Configuration;
using KvCluster.Node.Coordination;
using KvCluster.Node.Runtime;
using KvCluster.Node.Coordination.Embedded;
using KvCluster.Router;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.ServiceDefaults.Security;
using KvCluster.Tls;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.ServiceDefaults.Security;

/// <summary>Three nodes and a router with mutual TLS, each with a certificate of its own.</summary>
public sealed class SecureClusterTests : IAsyncLifetime
{
    private readonly CertificateFolder _folder = new();
    private readonly TemporaryDirectory _data = new();
    private readonly DevelopmentAuthority _authority = CertificateFolder.Authority();
    private readonly List<NodeHost> _nodes = [];
    private EmbeddedCoordinator _coordinator = null!;
    private RouterHost _router = null!;

    public async Task InitializeAsync()
    {
        _coordinator = EmbeddedCoordinator.Open(Path.Combine(_data.Path, "coordinator"), TimeProvider.System);
        await ClusterInit.CreateAsync(_coordinator, "local", new NewCluster([new(1), new(2), new(3)], 3, []), CancellationToken.None);
        for (var node = 1u; node <= 3; node++)
            await StartNodeAsync(node);
        _router = await RouterHost.StartAsync(
            new RouterOptions
            {
                Listen = "https://127.0.0.1:0", ServeAdmin = true, Seeds = [_nodes[0].Address], Timeout = Eventually.Limit,
                Tls = new ServerTlsOptions { Files = FilesFor("router", _authority, "router.local.kvcluster"), HandshakeTimeMax = Eventually.Limit }
            },
            new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None);
        _folder.Issue(_authority, "client");
    }

    public async Task DisposeAsync()
    {
        await _router.DisposeAsync();
        foreach (var node in _nodes)
            await node.StopAsync();
        await _coordinator.DisposeAsync();
        _authority.Dispose();
        _data.Dispose();
        _folder.Dispose();
    }

    [Fact]
    public async Task Writes_Continue_WhileAuthorityAndCertificatesAreReplaced()
    {
        await using var direct = ClientOf(_nodes[1].Address);
        await using var gateway = ClientOf(_router.Address, gateway: true);
        await PutAsync("before");

        // As an operator does it: first all trust both authorities, then all get new certificates, then the old authority is removed.
        using var next = CertificateFolder.Authority("next");
        var before = CertificatesInUse();
        _folder.Write("ca.pem", _authority.CertificatePem + next.CertificatePem);
        foreach (var (name, host) in Names())
            _folder.Write(name, next.Issue(name, [host, "127.0.0.1"], CertificateFolder.Now, CertificateFolder.Now.AddDays(30)));
        await PutAsync("during");
        await Eventually.TrueAsync(() => CertificatesInUse().Intersect(before).Any() == false, "each process uses its new certificate");
        _folder.Write("ca.pem", next.CertificatePem);

        await PutAsync("after");
        // A node that starts now trusts the new authority only. While another node is down, a write needs the stream between it and the third.
        await StopNodeAsync(2);
        await StartNodeAsync(3, next);
        await StopNodeAsync(1);
        await using var late = ClientOf(_nodes[1].Address);
        await late.PutAsync("late", "value");

        async Task PutAsync(string key)
        {
            await direct.PutAsync($"{key}/direct", "value");
            await gateway.PutAsync($"{key}/gateway", "value");
            Assert.True((await direct.GetAsync($"{key}/gateway")).Found);
        }
    }

    [Fact]
    public async Task Connect_WithoutTheCertificateOfThatNode_IsRefused()
    {
        var without = new TlsFiles { AuthorityFile = _folder.PathOf("ca.pem") };
        // The handshake fails: clients may come without a certificate, but not to the port for nodes.
        Assert.Equal(StatusCode.Unavailable, await ConnectAsync(without, 3));
        Assert.Equal(StatusCode.Unauthenticated, await ConnectAsync(_folder.FilesOf("client"), 3));
        Assert.Equal(StatusCode.PermissionDenied, await ConnectAsync(_folder.FilesOf("router"), 3));
        Assert.Equal(StatusCode.PermissionDenied, await ConnectAsync(_folder.FilesOf("node-2"), 3));
        Assert.Equal(StatusCode.PermissionDenied, await ConnectAsync(_folder.Issue(_authority, "foreign", "node-3.other.kvcluster"), 3));
        Assert.Equal(StatusCode.OK, await ConnectAsync(_folder.FilesOf("node-3"), 3));
    }

    /// <summary>For <c>kv doctor</c>, which knew the certificates of nodes only.</summary>
    [Fact]
    public async Task Certificate_OfARouter_IsReadFromItsHandshake()
    {
        // A handshake that takes more than five seconds, as where the machine stalls, is an error.
        await Eventually.TrueAsync(async () =>
        {
            var presented = Assert.Single(await Handshakes.ReadAsync(new Uri(_router.Address), ClientTls, CancellationToken.None));
            Assert.Equal(_router.Address, presented.Server);
            if (presented.Error.Length > 0)
                return false;
            Assert.InRange(presented.End!.Value, CertificateFolder.Now.AddDays(29), CertificateFolder.Now.AddDays(30));
            return true;
        }, "the certificate is read");
    }

    [Fact]
    public async Task Start_WithTheCertificateOfAnotherNode_IsRefused()
    {
        var failure = await Assert.ThrowsAsync<UnusableFileException>(() => NodeHost.StartAsync(
            OptionsOf(3) with { Node = new(4), DataDirectory = Path.Combine(_data.Path, "node-4") },
            _coordinator, new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None));
        Assert.Contains("does not name node-4.local.kvcluster but node-3.local.kvcluster", failure.Message, StringComparison.Ordinal);
    }

    private KvTlsOptions ClientTls =>
        new() { AuthorityFile = _folder.PathOf("ca.pem"), CertificateFile = _folder.PathOf("client.pem"), KeyFile = _folder.PathOf("client-key.pem") };

    private static IEnumerable<(string Name, string Host)> Names() =>
        [("node-1", "node-1.local.kvcluster"),
            ("node-2", "node-2.local.kvcluster"), ("node-3", "node-3.local.kvcluster"), ("router", "router.local.kvcluster"), ("client", "client")];

    private TlsFiles FilesFor(string name, DevelopmentAuthority authority, string host) => _folder.Issue(authority, name, host, "127.0.0.1");

    private NodeOptions OptionsOf(uint node) => new()
    {
        Node = new(node),
        DataDirectory = Path.Combine(_data.Path, $"node-{node}"),
        Listen = "https://127.0.0.1:0",
        Tls = new ServerTlsOptions { Files = _folder.FilesOf($"node-{node}"), RequiresClientCertificate = false, HandshakeTimeMax = Eventually.Limit },
        DrainTimeMax = Eventually.Limit,
        StopTimeMax = Eventually.Limit,
    };

    private async Task StartNodeAsync(uint node, DevelopmentAuthority? authority = null)
    {
        FilesFor($"node-{node}", authority ?? _authority, NodeNames.OfNode(node, "local"));
        _nodes.Add(await NodeHost.StartAsync(OptionsOf(node), _coordinator, new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None));
    }

    private async Task StopNodeAsync(int index)
    {
        await _nodes[index].StopAsync();
        _nodes.RemoveAt(index);
    }

    private KvClient ClientOf(string endpoint, bool gateway = false) => new(new KvClientOptions
    {
        Endpoints = [endpoint],
        Gateway = gateway,
        Timeout = Eventually.Limit,
        Tls = ClientTls,
    });

    private HashSet<string> CertificatesInUse() => [.. _nodes.Select(node => node.Address).Append(_router.Address).Select(ServerCertificates.ThumbprintOf)];

    // The status of a stream to node 1 that claims to come from this node.
    private async Task<StatusCode> ConnectAsync(TlsFiles files, uint node)
    {
        using var channel = ChannelTo(_nodes[0].PeerAddress, files);
        var record = RecordText.Parse<ClusterRecord>((await _coordinator.GetAsync(new CoordinatorKeys("local").Cluster, CancellationToken.None)).Value!);
        using var limit = new CancellationTokenSource(Eventually.Limit);
        using var call = new Internal.V1.Replication.ReplicationClient(channel.Calls()).Connect(cancellationToken: limit.Token);
        try
        {
            // A node that refuses the stream may have ended it before the write. Its answer says why.
            await Record.ExceptionAsync(() => call.RequestStream.WriteAsync(new PeerMessage
            {
                Hello = new PeerHello
                {
                    ClusterId = record.ClusterId, Node = node, Levels = ProgramLevels.Current.ToMessage(), Incarnation = 1, Lineage = record.Lineage
                }
            }));
            Assert.True(await call.ResponseStream.MoveNext(limit.Token));
            return StatusCode.OK;
        }
        catch (RpcException failure)
        {
            return failure.StatusCode;
        }
    }

    private static GrpcChannel ChannelTo(string address, TlsFiles files) => GrpcChannel.ForAddress(address, new GrpcChannelOptions
    {
        DisposeHttpClient = true,
        HttpHandler =
            new SocketsHttpHandler { UseProxy = false, ConnectCallback = new TlsConnector(new CredentialFiles(files, TimeProvider.System)).ConnectAsync },
    });
}
