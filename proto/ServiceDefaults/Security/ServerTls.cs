// TLS of one server: the callback that Kestrel calls for every connection, and its files. Created and disposed by the host of the node or router. Handshakes
// run on the thread pool. A connection keeps the certificate that it began with.
using System.Net;
using System.Net.Security;
using System.Security.Cryptography.X509Certificates;
using KvCluster.ServiceDefaults.Logs;
using KvCluster.Tls;
using Microsoft.AspNetCore.Hosting;
using Microsoft.AspNetCore.Server.Kestrel.Core;
using Microsoft.AspNetCore.Server.Kestrel.Https;
using Microsoft.Extensions.Logging;

namespace KvCluster.ServiceDefaults.Security;

/// <summary>Secures a server's connections with files that may change.</summary>
internal sealed class ServerTls : IAsyncDisposable
{
    private readonly bool _requiresClientCertificate;
    private readonly TimeSpan _handshakeTimeMax;
    private readonly ILogger _log;
    private readonly OncePerHost _refused;
    private readonly CertificateWatch _watch;

    /// <param name="options">The files, and whether clients must present a certificate.</param>
    /// <param name="name">The name that the certificate must have, from <see cref="NodeNames"/>; null means any.</param>
    /// <param name="log">Gets messages about certificates and refused connections.</param>
    /// <param name="time">Tells when certificates expire.</param>
    /// <exception cref="UnusableFileException">A file is not usable.</exception>
    public ServerTls(ServerTlsOptions options, string? name, ILogger log, TimeProvider time)
    {
        Files = new CredentialFiles(options.Files with { IsOfAuthority = true, RequiredName = name }, time);
        _requiresClientCertificate = options.RequiresClientCertificate;
        _handshakeTimeMax = options.HandshakeTimeMax;
        _log = log;
        _refused = new OncePerHost(time);
        _watch = new CertificateWatch(Files, log, time);
    }

    /// <summary>The files, also for connections that this process makes.</summary>
    public CredentialFiles Files { get; }

    /// <summary>Makes a listener accept TLS only.</summary>
    /// <param name="isForPeers">Whether every caller must present a certificate, whatever the option for clients says.</param>
    public void Secure(ListenOptions listen, bool isForPeers) => listen.UseHttps(new TlsHandshakeCallbackOptions
    {
        HandshakeTimeout = _handshakeTimeMax,
        OnConnection = context => ValueTask.FromResult(OptionsFor(context.Connection.RemoteEndPoint, isForPeers || _requiresClientCertificate)),
    });

    public ValueTask DisposeAsync() => _watch.DisposeAsync();

    private SslServerAuthenticationOptions OptionsFor(EndPoint? remote, bool requiresCertificate)
    {
        var credentials = Files.Current;
        return new SslServerAuthenticationOptions
        {
            ServerCertificateContext = credentials.Context,
            CertificateChainPolicy = credentials.ChainPolicy,
            // Always requested, because routers use the same port as clients.
            ClientCertificateRequired = true,
            CertificateRevocationCheckMode = X509RevocationMode.NoCheck,
            RemoteCertificateValidationCallback = (_, certificate, chain, errors) => Admits(
                credentials, remote, requiresCertificate, certificate, chain, errors),
        };
    }

    private bool Admits(
        TlsCredentials credentials, EndPoint? remote, bool requiresCertificate, X509Certificate? certificate, X509Chain? chain, SslPolicyErrors errors)
    {
        if (errors == SslPolicyErrors.None || (certificate is null && !requiresCertificate))
            return true;
        if (_refused.MaySay((remote as IPEndPoint)?.Address, out var host))
            SecurityLog.Refused(_log, host, CertificateRefusal.Describe(certificate, chain, errors, name: null, credentials.Files.AuthorityFile));
        return false;
    }
}

/// <summary>How a node or router secures the connections that it accepts and makes.</summary>
internal sealed record ServerTlsOptions
{
    /// <summary>The cluster's authority, and this process's certificate and key.</summary>
    public required TlsFiles Files { get; init; }

    /// <summary>
    /// Whether every client must present a certificate of the authority. Otherwise it may. A certificate of another authority is refused in any case.
    /// </summary>
    public bool RequiresClientCertificate { get; init; }

    /// <summary>A connection whose handshake takes longer is closed, so that nobody can hold connections open without presenting a certificate.</summary>
    public TimeSpan HandshakeTimeMax { get; init; } = TimeSpan.FromSeconds(5);
}
