using System.Net;

namespace KvCluster.ServiceDefaults.Hosting;

/// <summary>Where a program of this machine reaches what listens at an address.</summary>
internal static class LocalAddress
{
    /// <summary>The address itself, or loopback if it means all addresses of the machine.</summary>
    public static Uri Of(Uri listened)
    {
        if (!IPAddress.TryParse(listened.Host.Trim('[', ']'), out var address))
            return listened;
        var host = address.Equals(IPAddress.Any) ? IPAddress.Loopback : address.Equals(IPAddress.IPv6Any) ? IPAddress.IPv6Loopback : address;
        return new UriBuilder(listened) { Host = host.ToString() }.Uri;
    }
}
