using System.Net;
using Microsoft.AspNetCore.Http;

namespace KvCluster.AdminConsole;

/// <summary>The headers of every answer of the console.</summary>
internal static class PageHeaders
{
    private const string Policy =
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        + "frame-ancestors 'none'";

    public static void Set(HttpResponse response)
    {
        var headers = response.Headers;
        headers.ContentSecurityPolicy = Policy;
        headers.CacheControl = "no-store";
        headers.XContentTypeOptions = "nosniff";
        headers["Referrer-Policy"] = "no-referrer";
        headers["Cross-Origin-Resource-Policy"] = "same-origin";
        headers["Cross-Origin-Opener-Policy"] = "same-origin";
    }

    /// <summary>
    /// Whether the request addressed the port by an IP address, as localhost, or by one of the given names. A page of another site could have its own name
    /// resolved to this machine and would then count as the same site. That is not possible with an address.
    /// </summary>
    public static bool IsKnownHost(HttpRequest request, IReadOnlySet<string> hosts)
    {
        var host = request.Host.Host;
        return IPAddress.TryParse(host.Trim('[', ']'), out _) || string.Equals(host, "localhost", StringComparison.OrdinalIgnoreCase) || hosts.Contains(host);
    }

    /// <summary>Whether a request was made by the console's own page or by no page at all, as far as a browser tells.</summary>
    public static bool IsOfThisPage(HttpRequest request)
    {
        if (request.Headers.TryGetValue("Sec-Fetch-Site", out var site) && site.ToString() is not ("same-origin" or "none"))
            return false;
        return request.Headers.Origin.ToString() is not { Length: > 0 } origin
            || (Uri.TryCreate(origin, UriKind.Absolute, out var of) && string.Equals(of.Authority, Authority(request), StringComparison.OrdinalIgnoreCase));
    }

    // Without a port that is the scheme's default, as in Uri.Authority. A TLS proxy in front keeps the host and changes the scheme.
    private static string Authority(HttpRequest request) => request.Host.Port is 80 or 443 ? request.Host.Host : request.Host.Value ?? "";
}
