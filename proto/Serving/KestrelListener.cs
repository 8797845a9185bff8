using System.Net;
using KvCluster.Serving.Security;
using Microsoft.AspNetCore.Server.Kestrel.Core;

namespace KvCluster.Serving;

/// <summary>How this program's servers listen: HTTP/2 on one address, in clear text or with TLS.</summary>
internal static class KestrelListener
{
    /// <param name="address">A host of "localhost" means the loopback address; another name than an IP address: all addresses of the machine.</param>
    /// <param name="tls">For https; null: in clear text.</param>
    public static void Listen(KestrelServerOptions kestrel, Uri address, ServerTls? tls)
    {
        kestrel.AddServerHeader = false;
        // A router's or a busy client's unary calls come on few connections.
        kestrel.Limits.Http2.MaxStreamsPerConnection = 4_096;
        kestrel.Limits.Http2.InitialConnectionWindowSize = 8 << 20;
        kestrel.Limits.Http2.InitialStreamWindowSize = 4 << 20;
        if (IPAddress.TryParse(address.Host.Trim('[', ']'), out var ip))
            kestrel.Listen(ip, address.Port, Http2);
        else if (address.Host == "localhost")
            kestrel.Listen(IPAddress.Loopback, address.Port, Http2);
        else
            kestrel.ListenAnyIP(address.Port, Http2);

        void Http2(ListenOptions listen)
        {
            listen.Protocols = HttpProtocols.Http2;
            tls?.Secure(listen);
        }
    }
}
