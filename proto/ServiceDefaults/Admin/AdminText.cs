using Microsoft.AspNetCore.Http;

namespace KvCluster.ServiceDefaults.Admin;

/// <summary>Writes an answer of one line for people.</summary>
internal static class AdminText
{
    public static Task WriteAsync(HttpContext context, int status, string line)
    {
        context.Response.StatusCode = status;
        context.Response.ContentType = "text/plain; charset=utf-8";
        context.Response.Headers.CacheControl = "no-store";
        return context.Response.WriteAsync(line + "\n");
    }
}
