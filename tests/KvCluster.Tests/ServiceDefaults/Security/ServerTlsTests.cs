using System.Net.Security;
using System.Net.Sockets;
using System.Security.Cryptography.X509Certificates;
using Grpc.Core;
using Grpc.Health.V1;
using Grpc.Net.Client;
using KvCluster.Client;
using KvCluster.ServiceDefaults.Hosting;
using KvCluster.ServiceDefaults.Security;
using KvCluster.Tls;
using Microsoft.AspNetCore.Builder;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging.Abstractions;
using ServingStatus = Grpc.Health.V1.HealthCheckResponse.Types.ServingStatus;

namespace KvCluster.Tests.ServiceDefaults.Security;

/// <summary>A server with TLS, and which clients it admits, over real loopback connections.</summary>
public sealed class ServerTlsTests : IAsyncLifetime
{
    private readonly CertificateFolder _folder = new();
    private readonly DevelopmentAuthority _authority = CertificateFolder.Authority();
    private readonly LinesLog _log = new();
    private readonly GrpcHealth _health = new();
    private TlsFiles _serverFiles = null!;
    private ServerTls? _tls;
    private OwnedServer? _server;

    private Uri Address => new(_server!.App.Urls.Single());

    public Task InitializeAsync()
    {
        _serverFiles = _folder.Issue(_authority, "server", "localhost", "127.0.0.1");
        _health.SetStatus("", ServingStatus.Serving);
        return Task.CompletedTask;
    }

    public async Task DisposeAsync()
    {
        if (_server is not null)
            await _server.DisposeAsync();
        if (_tls is not null)
            await _tls.DisposeAsync();
        _authority.Dispose();
        _folder.Dispose();
    }

    [Fact]
    public async Task Call_WithTheAuthorityOnly_IsServed()
    {
        await StartAsync(requiresClientCertificate: false);
        Assert.Equal(ServingStatus.Serving, await CheckAsync(new TlsFiles { AuthorityFile = _serverFiles.AuthorityFile }));
    }

    [Fact]
    public async Task Call_WithACertificate_IsServedWhereOneIsRequired()
    {
        await StartAsync(requiresClientCertificate: true);
        Assert.Equal(ServingStatus.Serving, await CheckAsync(_folder.Issue(_authority, "client")));
    }

    /// <summary>A program that gets its certificate from a store had to write it into a file.</summary>
    [Fact]
    public async Task Call_WithACertificateAsAnObject_IsServedWhereOneIsRequired()
    {
        await StartAsync(requiresClientCertificate: true);
        using var certificate = OwnCertificate();
        var authorities = AuthoritiesOf(_authority);
        Assert.Equal(ServingStatus.Serving, await CheckAsync(new KvTlsOptions { Authorities = authorities, Certificate = certificate }));
        var asked = 0;
        Assert.Equal(ServingStatus.Serving, await CheckAsync(new KvTlsOptions
        {
            Authorities = authorities,
            CertificateSource = () =>
            {
                Interlocked.Increment(ref asked);
                return certificate;
            },
        }));
        Assert.True(asked > 0);
        var without = new KvTlsOptions { AuthorityFile = _serverFiles.AuthorityFile, CertificateSource = static () => null };
        Assert.Equal(StatusCode.Unavailable, (await Assert.ThrowsAsync<RpcException>(() => CheckAsync(without))).StatusCode);
    }

    [Fact]
    public async Task Call_WhoseProgramDecidesOnTheServer_IsServedAsItSays()
    {
        await StartAsync(requiresClientCertificate: false);
        using var other = CertificateFolder.Authority("other");
        var seen = SslPolicyErrors.None;
        Assert.Equal(ServingStatus.Serving, await CheckAsync(new KvTlsOptions
        {
            Authorities = AuthoritiesOf(other),
            ValidateServer = (_, _, _, errors) =>
            {
                seen = errors;
                return true;
            },
        }));
        Assert.Equal(SslPolicyErrors.RemoteCertificateChainErrors, seen);
        var refusing = new KvTlsOptions { Authorities = AuthoritiesOf(_authority), ValidateServer = static (_, _, _, _) => false };
        Assert.Contains(
            "the program does not accept its certificate", (await Assert.ThrowsAsync<RpcException>(() => CheckAsync(refusing))).Status.Detail,
            StringComparison.Ordinal);
        Assert.Contains(
            "is not signed by an authority in the program's own list",
            (await Assert.ThrowsAsync<RpcException>(() => CheckAsync(new KvTlsOptions { Authorities = AuthoritiesOf(other) }))).Status.Detail,
            StringComparison.Ordinal);
    }

    [Fact]
    public void Certificates_ThatContradict_AreNamed()
    {
        using var certificate = OwnCertificate();
        using var without = X509CertificateLoader.LoadCertificate(certificate.RawData);
        var message = Assert.Throws<ArgumentException>(() => new KvClient(new KvClientOptions
        {
            Tls = new KvTlsOptions
            {
                AuthorityFile = "ca.pem", Authorities = new(), CertificateFile = "my.pem", Certificate = without, CertificateSource = static () => null,
            },
        })).Message;
        foreach (var part in (string[])["AuthorityFile and Authorities exclude each other",
            "CertificateFile, Certificate and CertificateSource exclude each other", "Tls.Certificate has no private key"])
            Assert.Contains(part, message, StringComparison.Ordinal);
        var chain = new KvClientOptions { Tls = new KvTlsOptions { CertificateFile = "my.pem", CertificateChain = new() } };
        Assert.Contains("Tls.CertificateChain requires", Assert.Throws<ArgumentException>(() => new KvClient(chain)).Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task Call_WithoutACertificate_IsRefusedWhereOneIsRequired()
    {
        await StartAsync(requiresClientCertificate: true);
        await UnavailableAsync(new TlsFiles { AuthorityFile = _serverFiles.AuthorityFile });
        await Eventually.TrueAsync(() => _log.Lines.Length > 0, "the server logs it");
        Assert.Equal("Warning: Refused a TLS connection from 127.0.0.1: it presented no certificate", Assert.Single(_log.Lines));
    }

    [Fact]
    public async Task Call_WithACertificateOfAnotherAuthority_IsRefused()
    {
        await StartAsync(requiresClientCertificate: false);
        using var other = CertificateFolder.Authority("other");
        _folder.Write("foreign", other.Issue("foreign", [], CertificateFolder.Now, CertificateFolder.Now.AddDays(1)));
        await UnavailableAsync(_folder.FilesOf("foreign"));
        await Eventually.TrueAsync(() => _log.Lines.Length > 0, "the server logs it");
        Assert.Equal(
            $"Warning: Refused a TLS connection from 127.0.0.1: its certificate (CN=foreign) is not signed by an authority in {_serverFiles.AuthorityFile}",
            Assert.Single(_log.Lines));
    }

    [Fact]
    public async Task Call_TrustingAnotherAuthority_SaysSo()
    {
        await StartAsync(requiresClientCertificate: false);
        using var other = CertificateFolder.Authority("other");
        var file = _folder.Write("other.pem", other.CertificatePem);
        Assert.Contains(
            $"its certificate (CN=server) is not signed by an authority in {file}", await UnavailableAsync(new TlsFiles { AuthorityFile = file }),
            StringComparison.Ordinal);
    }

    [Fact]
    public async Task Call_ToAServerWithAnotherName_SaysSo()
    {
        await StartAsync(requiresClientCertificate: false);
        var trusting = new TlsFiles { AuthorityFile = _serverFiles.AuthorityFile };
        Assert.Contains(
            "does not name node-1.c.kvcluster but localhost, 127.0.0.1", await UnavailableAsync(trusting, "node-1.c.kvcluster"), StringComparison.Ordinal);
        Assert.Equal(ServingStatus.Serving, await CheckAsync(trusting, "localhost"));
    }

    /// <summary>A server still runs after its certificate has expired: no client connects to it, and each says why.</summary>
    [Fact]
    public async Task Call_ToAServerWithAnExpiredCertificate_SaysSo()
    {
        var ended = _authority.Issue("ended", ["127.0.0.1"], CertificateFolder.Now.AddDays(-3), CertificateFolder.Now.AddDays(-1));
        using var listener = new TcpListener(System.Net.IPAddress.Loopback, 0);
        listener.Start();
        using var certificate = X509Certificate2.CreateFromPem(ended.CertificatePem, ended.KeyPem);
        var serving = ServeOnceAsync(listener, certificate);
        var connector = new TlsConnector(new CredentialFiles(new TlsFiles { AuthorityFile = _serverFiles.AuthorityFile }, TimeProvider.System));
        using var channel = ChannelTo(new Uri($"https://127.0.0.1:{((System.Net.IPEndPoint)listener.LocalEndpoint).Port}"), connector);
        var failure = await Assert.ThrowsAsync<RpcException>(() => new Health.HealthClient(channel.Calls()).CheckAsync(new HealthCheckRequest()).ResponseAsync);
        Assert.Contains("its certificate (CN=ended) is valid only from", failure.Status.Detail, StringComparison.Ordinal);
        await serving;
    }

    [Fact]
    public async Task Reload_WhileAStreamIsOpen_AppliesToNewConnectionsOnly()
    {
        await StartAsync(requiresClientCertificate: true);
        var client = new CredentialFiles(_folder.Issue(_authority, "client"), TimeProvider.System);
        using var channel = ChannelTo(Address, new TlsConnector(client));
        using var stream = new Health.HealthClient(channel.Calls()).Watch(new HealthCheckRequest());
        Assert.True(await stream.ResponseStream.MoveNext(CancellationToken.None));
        Assert.Equal("CN=server", await ShownAsync());

        _folder.Write("server", _authority.Issue("renewed", ["127.0.0.1"], CertificateFolder.Now, CertificateFolder.Now.AddDays(30)));
        Assert.True(_tls!.Files.Refresh());
        Assert.Equal("CN=renewed", await ShownAsync());
        _health.SetStatus("", ServingStatus.NotServing);
        Assert.True(await stream.ResponseStream.MoveNext(CancellationToken.None));
        Assert.Equal(ServingStatus.NotServing, stream.ResponseStream.Current.Status);
    }

    private static async Task ServeOnceAsync(TcpListener listener, X509Certificate2 certificate)
    {
        using var accepted = await listener.AcceptTcpClientAsync();
        await using var secure = new SslStream(accepted.GetStream());
        // The client aborts the handshake, or closes the connection after it.
        await Assert.ThrowsAnyAsync<Exception>(async () =>
        {
            await secure.AuthenticateAsServerAsync(certificate);
            await secure.ReadExactlyAsync(new byte[1 << 20]);
        });
    }

    private static GrpcChannel ChannelTo(Uri address, TlsConnector connector) => GrpcChannel.ForAddress(address, new GrpcChannelOptions
    {
        DisposeHttpClient = true,
        HttpHandler = new SocketsHttpHandler { UseProxy = false, ConnectCallback = connector.ConnectAsync },
    });

    private async Task StartAsync(bool requiresClientCertificate)
    {
        _tls = new ServerTls(
            new ServerTlsOptions { Files = _serverFiles, RequiresClientCertificate = requiresClientCertificate, HandshakeTimeMax = Eventually.Limit },
            name: null, _log, TimeProvider.System);
        var builder = ServerBuilder.Create(NullLoggerFactory.Instance, new Uri("https://127.0.0.1:0"), _tls);
        builder.Services.AddSingleton(_health);
        builder.Services.AddGrpc();
        var app = builder.Build();
        app.MapGrpcService<GrpcHealth>();
        _server = await OwnedServer.StartAsync(app, new Uri("https://127.0.0.1:0"), _health, CancellationToken.None);
    }

    private async Task<ServingStatus> CheckAsync(TlsFiles files, string? serverName = null)
    {
        using var channel = ChannelTo(Address, new TlsConnector(new CredentialFiles(files, TimeProvider.System), serverName));
        return (await new Health.HealthClient(channel.Calls()).CheckAsync(new HealthCheckRequest())).Status;
    }

    private async Task<ServingStatus> CheckAsync(KvTlsOptions tls)
    {
        using var channel = ChannelTo(Address, KvClient.ConnectorOf(tls));
        return (await new Health.HealthClient(channel.Calls()).CheckAsync(new HealthCheckRequest())).Status;
    }

    private X509Certificate2 OwnCertificate()
    {
        var issued = _authority.Issue("client", [], CertificateFolder.Now.AddDays(-1), CertificateFolder.Now.AddDays(30));
        return X509Certificate2.CreateFromPem(issued.CertificatePem, issued.KeyPem);
    }

    private static X509Certificate2Collection AuthoritiesOf(DevelopmentAuthority authority)
    {
        var authorities = new X509Certificate2Collection();
        authorities.ImportFromPem(authority.CertificatePem);
        return authorities;
    }

    private async Task<string> UnavailableAsync(TlsFiles files, string? serverName = null)
    {
        var failure = await Assert.ThrowsAsync<RpcException>(() => CheckAsync(files, serverName));
        Assert.Equal(StatusCode.Unavailable, failure.StatusCode);
        return failure.Status.Detail;
    }

    // The certificate that a new connection gets.
    private async Task<string> ShownAsync()
    {
        using var client = new TcpClient();
        await client.ConnectAsync(Address.Host, Address.Port);
        await using var secure = new SslStream(client.GetStream(), leaveInnerStreamOpen: false, (_, _, _, _) => true);
        await secure.AuthenticateAsClientAsync(new SslClientAuthenticationOptions
        {
            TargetHost = "127.0.0.1",
            ApplicationProtocols = [SslApplicationProtocol.Http2],
            ClientCertificateContext = new CredentialFiles(_folder.FilesOf("client"), TimeProvider.System).Current.Context,
        });
        return secure.RemoteCertificate!.Subject;
    }
}
