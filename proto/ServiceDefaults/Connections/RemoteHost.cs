using System.Net;
using System.Net.Sockets;

namespace KvCluster.ServiceDefaults.Connections;

/// <summary>
/// What counts as one host where callers share connections and turns: an IPv4 address, or an IPv6 network of 64 bits, because a machine that has one may use a
/// different address in it for each connection.
/// </summary>
internal static class RemoteHost
{
    // Connections without an address, as from Unix sockets, count as those of one host.
    private static readonly IPAddress NoAddress = IPAddress.None;

    /// <summary>The host at the other end of a connection.</summary>
    public static IPAddress Of(EndPoint? remote)
    {
        var address = (remote as IPEndPoint)?.Address ?? NoAddress;
        if (address.IsIPv4MappedToIPv6)
            return address.MapToIPv4();
        Span<byte> bytes = stackalloc byte[16];
        if (address.AddressFamily != AddressFamily.InterNetworkV6 || !address.TryWriteBytes(bytes, out _))
            return address;
        bytes[8..].Clear();
        return new IPAddress(bytes, address.ScopeId);
    }

    /// <summary>How messages name a host.</summary>
    public static string NameOf(IPAddress host) => host.AddressFamily == AddressFamily.InterNetworkV6 ? $"{host}/64" : host.ToString();
}
