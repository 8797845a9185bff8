using System.Net;

namespace KvCluster.ServiceDefaults.Security;

/// <summary>Where a server may listen without TLS: on loopback, and elsewhere only if that is explicitly allowed.</summary>
internal static class PlainText
{
    /// <summary>Whether an address to listen at is plain text and reachable from other machines.</summary>
    public static bool IsExposed(Uri listen) => listen.Scheme == Uri.UriSchemeHttp && !IsLoopback(listen.Host.Trim('[', ']'));

    // As in KestrelListener: a name other than localhost means all addresses of the machine.
    private static bool IsLoopback(string host) => host == "localhost" || (IPAddress.TryParse(host, out var address) && IPAddress.IsLoopback(address));
}
