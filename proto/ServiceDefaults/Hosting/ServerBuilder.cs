using KvCluster.ServiceDefaults.Calls;
using KvCluster.ServiceDefaults.Connections;
using KvCluster.ServiceDefaults.Security;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Hosting;
using Microsoft.AspNetCore.Server.Kestrel.Core;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Hosting;
using Microsoft.Extensions.Logging;

namespace KvCluster.ServiceDefaults.Hosting;

/// <summary>
/// Builds a server that reads neither the environment nor settings files of the working directory. The usual builders also watch that directory and
/// everything below it, so a node started in the parent of its data directory would wake up for every write to its journals.
/// </summary>
internal static class ServerBuilder
{
    /// <param name="logs">Owned by the caller.</param>
    /// <param name="listen">"http://host:port" or "https://host:port".</param>
    /// <param name="tls">For https; owned by the caller.</param>
    /// <param name="protocols">The HTTP protocols to serve.</param>
    /// <param name="limits">Limits of connections and requests; null means those of a port for clients.</param>
    public static WebApplicationBuilder Create(
        ILoggerFactory logs, Uri listen, ServerTls? tls = null, HttpProtocols protocols = HttpProtocols.Http2, ListenerLimits? limits = null)
    {
        var builder = WebApplication.CreateEmptyBuilder(new WebApplicationOptions());
        builder.WebHost.UseKestrelCore().ConfigureKestrel(
            kestrel => KestrelListener.Listen(kestrel, listen, protocols, tls, limits ?? ListenerLimits.OfClients(ListenerLimits.ConnectionsDefault), logs));
        builder.Services.AddRoutingCore();
        builder.AddCallPolicy();
        builder.Services.AddSingleton<ILoggerFactory>(new CallLogs(logs));
        builder.Services.AddSingleton<IHostLifetime, NoLifetime>();
        return builder;
    }
}
