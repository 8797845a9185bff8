// Makes the connections of a SocketsHttpHandler, with TLS for https addresses. The handler's own TLS would keep the certificates that it was created with;
// this one uses the present content of the files for each connection. Any thread.
using System.Net.Security;
using System.Net.Sockets;
using System.Security.Authentication;

namespace KvCluster.Tls;

/// <summary>Connects, and describes in one line what is wrong with the other side's certificate.</summary>
/// <param name="files">What to trust and present; null means to trust the machine's authorities and present nothing.</param>
/// <param name="serverName">The name that the other side's certificate must have; null means the host of the address.</param>
internal sealed class TlsConnector(CredentialFiles? files, string? serverName = null)
{
    private const string OwnList = "the program's own list";

    /// <summary>What takes the place of files.</summary>
    public GivenCredentials Given { get; init; } = new();

    /// <summary>For <see cref="SocketsHttpHandler.ConnectCallback"/>. The handler's ConnectTimeout limits its time.</summary>
    /// <exception cref="AuthenticationException">The other side's certificate is refused, or it refuses ours.</exception>
    public async ValueTask<Stream> ConnectAsync(SocketsHttpConnectionContext context, CancellationToken cancellationToken)
    {
        var socket = new Socket(SocketType.Stream, ProtocolType.Tcp) { NoDelay = true };
        try
        {
            // The system's resolver continues after it is cancelled, for ten seconds or more if it looks up a host that is gone. This does not wait for it.
            await socket.ConnectAsync(context.DnsEndPoint, cancellationToken).AsTask().WaitAsync(cancellationToken).ConfigureAwait(false);
            var stream = new NetworkStream(socket, ownsSocket: true);
            return context.InitialRequestMessage.RequestUri?.Scheme == Uri.UriSchemeHttps
                ? await SecureAsync(stream, context.DnsEndPoint.Host, cancellationToken).ConfigureAwait(false)
                : stream;
        }
        catch
        {
            socket.Dispose();
            throw;
        }
    }

    private async Task<Stream> SecureAsync(Stream stream, string host, CancellationToken cancellationToken)
    {
        var credentials = files?.Fresh();
        var name = serverName ?? host;
        var refusal = "";
        var options = new SslClientAuthenticationOptions
        {
            TargetHost = name,
            ApplicationProtocols = [SslApplicationProtocol.Http2],
            CertificateChainPolicy = Given.Authorities is { } authorities ? TlsCredentials.PolicyOf(authorities) : credentials?.ChainPolicy,
            ClientCertificateContext = Given.Own is { } own ? own() : credentials?.Context,
            RemoteCertificateValidationCallback = (sender, certificate, chain, errors) =>
            {
                if (Given.Accept?.Invoke(sender, certificate, chain, errors) ?? errors == SslPolicyErrors.None)
                    return true;
                refusal = errors == SslPolicyErrors.None
                    ? "the program does not accept its certificate"
                    : CertificateRefusal.Describe(
                        certificate, chain, errors, name, Given.Authorities is null ? credentials?.Files.AuthorityFile : OwnList);
                return false;
            },
        };
        var secure = new SslStream(stream);
        try
        {
            await secure.AuthenticateAsClientAsync(options, cancellationToken).ConfigureAwait(false);
            return secure;
        }
        catch (Exception failure)
        {
            await secure.DisposeAsync().ConfigureAwait(false);
            if (failure is AuthenticationException && refusal.Length > 0)
                throw new AuthenticationException($"{host}: {refusal}", failure);
            throw;
        }
    }
}
