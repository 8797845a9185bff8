using System.Diagnostics.Metrics;
using KvCluster.ServiceDefaults.Telemetry;
using Microsoft.AspNetCore.Http;

namespace KvCluster.ServiceDefaults.Admin;

/// <summary>The endpoint /metrics of the admin port.</summary>
internal static class MetricsEndpoint
{
    /// <summary>Adds a page of metrics.</summary>
    /// <param name="admin">The admin port; null if there is none.</param>
    /// <param name="shows">Which meters to include besides those of the runtime.</param>
    /// <param name="cluster">Name of the cluster; empty while it is not known.</param>
    /// <returns>The page, to be disposed when the program stops; null without an admin port.</returns>
    public static MetricsPage? Add(AdminServer? admin, Func<Meter, bool> shows, Func<string> cluster)
    {
        if (admin is null)
            return null;
        var page = new MetricsPage(meter => MetricsPage.IsOfProcess(meter) || shows(meter), cluster);
        admin.Add([new AdminEndpoint(HttpMethods.Get, "/metrics", context => WriteAsync(context, page))]);
        return page;
    }

    private static async Task WriteAsync(HttpContext context, MetricsPage page)
    {
        context.Response.ContentType = MetricsPage.ContentType;
        page.WriteTo(context.Response.BodyWriter);
        await context.Response.BodyWriter.FlushAsync(context.RequestAborted).ConfigureAwait(false);
    }
}
