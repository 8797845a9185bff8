using System.Net;

namespace KvCluster.ServiceDefaults.Security;

/// <summary>Where a server may listen without TLS: on loopback; elsewhere only when that is asked for by name.</summary>
internal static class PlainText
{
    /// <summary>Whether an address to listen on is in plain text and can be reached by other machines.</summary>
    public static bool IsExposed(Uri listen) => listen.Scheme == Uri.UriSchemeHttp && !IsLoopback(listen.Host.Trim('[', ']'));

    // As KestrelListener reads it: another name than localhost means all addresses of the machine.
    private static bool IsLoopback(string host) => host == "localhost" || (IPAddress.TryParse(host, out var address) && IPAddress.IsLoopback(address));
}
