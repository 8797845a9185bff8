using System.Net;

namespace KvCluster.ServiceDefaults.Hosting;

/// <summary>Where a program of this machine reaches what listens at an address (<see cref="KestrelListener"/>).</summary>
internal static class LocalAddress
{
    /// <summary>
    /// The address itself, or loopback if it means all addresses of the machine. Names mean those, too, and are not looked up: they may be addresses of another
    /// machine that passes connections on.
    /// </summary>
    public static Uri Of(Uri listened)
    {
        var host = !IPAddress.TryParse(listened.Host.Trim('[', ']'), out var address) || address.Equals(IPAddress.Any) ? IPAddress.Loopback
            : address.Equals(IPAddress.IPv6Any) ? IPAddress.IPv6Loopback : address;
        return new UriBuilder(listened) { Host = host.ToString() }.Uri;
    }
}
