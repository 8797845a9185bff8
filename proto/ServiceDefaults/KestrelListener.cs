using System.Net;
using KvCluster.ServiceDefaults.Security;
using Microsoft.AspNetCore.Server.Kestrel.Core;
using Microsoft.Extensions.Logging;

namespace KvCluster.ServiceDefaults;

/// <summary>How this program's servers listen: on one address, in clear text or with TLS.</summary>
internal static class KestrelListener
{
    /// <param name="address">A host of "localhost" means the loopback address; another name than an IP address: all addresses of the machine.</param>
    /// <param name="protocols">What is spoken there.</param>
    /// <param name="limits">Of its connections and requests.</param>
    /// <param name="tls">For https; an address with http is served in clear text all the same.</param>
    /// <param name="logs">Where refused connections are told.</param>
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
            // Before TLS, so that a connection that never gets that far counts.
            if (limits.ConnectionsMax is { } connectionsMax)
                new ConnectionLimit(connectionsMax, logs.CreateLogger<ConnectionLimit>(), TimeProvider.System).Guard(listen);
            if (limits.IsGated)
                ReadingGate.OfProcess.Guard(listen);
            if (address.Scheme == Uri.UriSchemeHttps)
                (tls ?? throw new ArgumentException($"'{address}' needs certificates.", nameof(tls))).Secure(listen, limits.IsForPeers);
        }
    }
}
