using KvCluster.ServiceDefaults.Admin;
using Microsoft.AspNetCore.Http;

namespace KvCluster.AdminConsole;

/// <summary>The page's files, embedded in this assembly.</summary>
internal static class PageFiles
{
    private static readonly Dictionary<string, string> Types = new()
    {
        [".html"] = "text/html; charset=utf-8",
        [".css"] = "text/css; charset=utf-8",
        [".js"] = "text/javascript; charset=utf-8",
        [".svg"] = "image/svg+xml",
    };

    /// <summary>One endpoint for each file; the page itself is at "/".</summary>
    public static IEnumerable<AdminEndpoint> Endpoints() => typeof(PageFiles).Assembly.GetManifestResourceNames().Select(name =>
    {
        var (bytes, type) = (Read(name), Types[Path.GetExtension(name)]);
        return new AdminEndpoint(HttpMethods.Get, name == "index.html" ? "/" : $"/console/{name}", context =>
        {
            PageHeaders.Set(context.Response);
            context.Response.ContentType = type;
            context.Response.ContentLength = bytes.Length;
            return context.Response.Body.WriteAsync(bytes, context.RequestAborted).AsTask();
        });
    });

    private static byte[] Read(string name)
    {
        using var stream = typeof(PageFiles).Assembly.GetManifestResourceStream(name)!;
        var bytes = new byte[stream.Length];
        stream.ReadExactly(bytes);
        return bytes;
    }
}
