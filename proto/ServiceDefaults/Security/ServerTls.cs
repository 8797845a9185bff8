// TLS of one server: what Kestrel asks for with every connection, and the files behind it. Created and disposed by the node's or router's host; handshakes run on the
// thread pool. A connection keeps the certificate that it began with.
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

    /// <param name="options">The files, and what is asked of clients.</param>
    /// <param name="name">What the certificate must name, of <see cref="NodeNames"/>; null: anything.</param>
    /// <param name="log">What becomes of certificates, and who is refused.</param>
    /// <param name="time">For when certificates end.</param>
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

    /// <summary>Also for the connections that this process makes.</summary>
    public CredentialFiles Files { get; }

    /// <summary>Has what listens speak TLS only.</summary>
    /// <param name="isForPeers">Every caller must show a certificate, whatever is asked of clients.</param>
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
            // Asked for always: routers come to the same port as clients.
            ClientCertificateRequired = true,
            CertificateRevocationCheckMode = X509RevocationMode.NoCheck,
            RemoteCertificateValidationCallback = (_, certificate, chain, errors) => Admits(credentials, remote, requiresCertificate, certificate, chain, errors),
        };
    }

    private bool Admits(TlsCredentials credentials, EndPoint? remote, bool requiresCertificate, X509Certificate? certificate, X509Chain? chain, SslPolicyErrors errors)
    {
        if (errors == SslPolicyErrors.None || (certificate is null && !requiresCertificate))
            return true;
        if (_refused.MaySay((remote as IPEndPoint)?.Address, out var host))
            SecurityLog.Refused(_log, host, CertificateRefusal.Describe(certificate, chain, errors, name: null, credentials.Files.AuthorityFile));
        return false;
    }
}
