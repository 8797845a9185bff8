using System.Net.Sockets;
using Microsoft.AspNetCore.Http.Features;

namespace Grpc.AspNetCore.Server.Calls;

/// <summary>Formats a caller's address in gRPC's form.</summary>
internal static class PeerAddress
{
    public static string Format(IHttpConnectionFeature? connection) => connection?.RemoteIpAddress switch
    {
        null => "unknown",
        { AddressFamily: AddressFamily.InterNetworkV6 } address => $"ipv6:[{address}]:{connection.RemotePort}",
        var address => $"ipv4:{address}:{connection.RemotePort}",
    };
}
