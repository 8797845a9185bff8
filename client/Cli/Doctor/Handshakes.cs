// The certificates of servers that tell nothing about themselves: a router is in no map, and need not serve operators' calls. They are read in the handshake of
// a connection over which nothing is sent. Thread pool. What goes wrong is a result and no exception.
using System.Net;
using System.Net.Security;
using System.Net.Sockets;
using System.Security.Authentication;
using System.Security.Cryptography.X509Certificates;
using KvCluster.Client;
using KvCluster.Client.Doctor;

namespace KvCluster.Cli.Doctor;

/// <summary>Reads the certificates that servers present.</summary>
internal static class Handshakes
{
    private static readonly TimeSpan Limit = TimeSpan.FromSeconds(5);

    /// <summary>More machines behind one name are not looked at.</summary>
    private const int MachinesMax = 16;

    /// <summary>Reads the certificates of all machines behind an address that can be reached, or tells why none can.</summary>
    /// <param name="server">An https address.</param>
    /// <param name="tls">The certificate to present to servers that require one.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    public static async Task<IReadOnlyList<PresentedCertificate>> ReadAsync(Uri server, KvTlsOptions tls, CancellationToken cancellationToken)
    {
        var shown = server.GetLeftPart(UriPartial.Authority);
        IPAddress[] machines;
        try
        {
            machines = await Dns.GetHostAddressesAsync(server.DnsSafeHost, cancellationToken);
        }
        catch (SocketException failure)
        {
            return [new PresentedCertificate(shown, null, failure.Message)];
        }
        using var own = tls.CertificateFile is { } file ? X509Certificate2.CreateFromPemFile(file, tls.KeyFile) : null;
        var read = await Task.WhenAll(machines.Take(MachinesMax).Select(machine => ReadAsync(
            new IPEndPoint(machine, server.Port), tls.ServerName ?? server.DnsSafeHost, own,
            machines.Length > 1 ? $"{shown} ({machine})" : shown, cancellationToken)));
        // A name may have addresses at which nothing listens, as localhost has.
        var reached = read.Where(static one => one.IsReached).Select(static one => one.Certificate).ToList();
        return reached.Count > 0 ? reached : [read[0].Certificate with { Server = shown }];
    }

    private static async Task<(PresentedCertificate Certificate, bool IsReached)> ReadAsync(
        IPEndPoint machine, string name, X509Certificate2? own, string shown, CancellationToken cancellationToken)
    {
        using var limit = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
        limit.CancelAfter(Limit);
        using var socket = new Socket(machine.AddressFamily, SocketType.Stream, ProtocolType.Tcp);
        DateTimeOffset? end = null;
        var (error, isReached) = ("", false);
        try
        {
            await socket.ConnectAsync(machine, limit.Token);
            isReached = true;
            await using var secure = new SslStream(new NetworkStream(socket));
            await secure.AuthenticateAsClientAsync(
                new SslClientAuthenticationOptions
                {
                    TargetHost = name,
                    ApplicationProtocols = [SslApplicationProtocol.Http2],
                    ClientCertificates = own is null ? null : new X509CertificateCollection { own },
                    // Any certificate is accepted. The calls show whether it is trusted, but an expired one has to be seen here.
                    RemoteCertificateValidationCallback = (_, certificate, chain, _) =>
                    {
                        if (certificate is X509Certificate2 presented)
                            end = EndOf(presented, chain);
                        return certificate is not null;
                    },
                },
                limit.Token);
        }
        catch (OperationCanceledException) when (!cancellationToken.IsCancellationRequested)
        {
            error = $"no answer within {Limit.TotalSeconds} s";
        }
        catch (Exception failure) when (failure is IOException or SocketException or AuthenticationException)
        {
            error = failure.Message;
        }
        // A server that refuses the client's certificate has presented its own before.
        return (new PresentedCertificate(shown, end, end is null ? error : ""), isReached);
    }

    private static DateTimeOffset EndOf(X509Certificate2 presented, X509Chain? chain) => new((chain?.ChainElements.AsEnumerable() ?? [])
        .Select(static element => element.Certificate.NotAfter).Append(presented.NotAfter).Min().ToUniversalTime());
}
