using KvCluster.Client;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Hosting;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging;

namespace KvCluster.Tests.Client;

/// <summary>A program of ASP.NET Core on a free port, with a client of a cluster as a service, and a browser of its pages.</summary>
internal sealed class ProgramHost : IAsyncDisposable
{
    private readonly WebApplication _program;

    private ProgramHost(WebApplication program)
    {
        _program = program;
        Http = new HttpClient { BaseAddress = new Uri(program.Urls.Single()), Timeout = Eventually.Limit };
    }

    public IServiceProvider Services => _program.Services;

    public HttpClient Http { get; }

    public KvClient Client => Services.GetRequiredService<KvClient>();

    /// <summary>Starts the program.</summary>
    /// <param name="endpoints">The addresses of the cluster.</param>
    /// <param name="configure">Adds services.</param>
    /// <param name="map">Adds pages.</param>
    /// <param name="timeout">Of the client's calls.</param>
    public static async Task<ProgramHost> StartAsync(
        IEnumerable<string> endpoints, Action<WebApplicationBuilder> configure, Action<WebApplication>? map = null, TimeSpan? timeout = null)
    {
        var builder = WebApplication.CreateSlimBuilder();
        builder.Logging.ClearProviders();
        builder.WebHost.UseUrls("http://127.0.0.1:0");
        builder.Services.AddKvCluster(options =>
        {
            options.Endpoints = [.. endpoints];
            options.Timeout = timeout ?? Eventually.Limit;
        });
        configure(builder);
        var program = builder.Build();
        map?.Invoke(program);
        await program.StartAsync();
        return new ProgramHost(program);
    }

    /// <summary>Asks for a page, which must be there whatever becomes of the cluster.</summary>
    public Task<string> GetAsync(string path) => Http.GetStringAsync(new Uri(path, UriKind.Relative));

    public async ValueTask DisposeAsync()
    {
        Http.Dispose();
        await _program.DisposeAsync();
    }
}
