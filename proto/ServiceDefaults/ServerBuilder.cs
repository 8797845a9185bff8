using KvCluster.ServiceDefaults.Security;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Hosting;
using Microsoft.AspNetCore.Server.Kestrel.Core;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Hosting;
using Microsoft.Extensions.Logging;

namespace KvCluster.ServiceDefaults;

/// <summary>
/// Begins a server that takes nothing from its surroundings: no environment, and no settings files of the working directory, which the usual
/// builders also watch, with all that lies below it: a node started in the folder above its data would wake for every write to its journals.
/// </summary>
internal static class ServerBuilder
{
    /// <param name="logs">Stays the caller's.</param>
    /// <param name="listen">"http://host:port" or "https://host:port".</param>
    /// <param name="tls">For https; stays the caller's.</param>
    /// <param name="protocols">What is spoken there.</param>
    /// <param name="limits">Of connections and requests; null: those of a port for clients.</param>
    public static WebApplicationBuilder Create(ILoggerFactory logs, Uri listen, ServerTls? tls = null, HttpProtocols protocols = HttpProtocols.Http2, ListenerLimits? limits = null)
    {
        var builder = WebApplication.CreateEmptyBuilder(new WebApplicationOptions());
        builder.WebHost.UseKestrelCore().ConfigureKestrel(kestrel => KestrelListener.Listen(kestrel, listen, protocols, tls, limits ?? ListenerLimits.OfClients(ListenerLimits.ConnectionsDefault), logs));
        builder.Services.AddRoutingCore();
        builder.Services.AddSingleton(logs).AddSingleton<IHostLifetime, NoLifetime>();
        return builder;
    }
}
