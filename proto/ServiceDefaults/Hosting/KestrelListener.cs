using System.Net;
using KvCluster.ServiceDefaults.Connections;
using KvCluster.ServiceDefaults.Security;
using Microsoft.AspNetCore.Server.Kestrel.Core;
using Microsoft.Extensions.Logging;

namespace KvCluster.ServiceDefaults.Hosting;

/// <summary>Makes a program's server listen on one address, in plain text or with TLS.</summary>
internal static class KestrelListener
{
    /// <param name="address">The host "localhost" means the loopback address. Any other name that is not an IP address means all addresses of the
    /// machine.</param>
    /// <param name="protocols">The HTTP protocols to serve.</param>
    /// <param name="limits">Limits of its connections and requests.</param>
    /// <param name="tls">For https; an http address is served in plain text even if this is set.</param>
    /// <param name="logs">Gets messages about refused connections.</param>
    public static void Listen(KestrelServerOptions kestrel, Uri address, HttpProtocols protocols, ServerTls? tls, ListenerLimits limits, ILoggerFactory logs)
    {
        kestrel.AddServerHeader = false;
        limits.ApplyTo(kestrel.Limits);
        if (IPAddress.TryParse(address.Host.Trim('[', ']'), out var ip))
            kestrel.Listen(ip, address.Port, Speak);
        else if (address.Host == "localhost")
            kestrel.Listen(IPAddress.Loopback, address.Port, Speak);
        else
            kestrel.ListenAnyIP(address.Port, Speak);

        void Speak(ListenOptions listen)
        {
            listen.Protocols = protocols;
            // Before TLS, so that connections that do not complete the handshake are counted.
            if (limits.ConnectionsMax is { } connectionsMax)
                new ConnectionLimit(connectionsMax, logs.CreateLogger<ConnectionLimit>(), TimeProvider.System).Guard(listen);
            if (limits.IsGated)
                ReadingGate.OfProcess.Guard(listen);
            if (address.Scheme == Uri.UriSchemeHttps)
                (tls ?? throw new ArgumentException($"'{address}' needs certificates.", nameof(tls))).Secure(listen, limits.IsForPeers);
            if (protocols == HttpProtocols.Http2)
                StrayResets.Guard(listen);
        }
    }
}
