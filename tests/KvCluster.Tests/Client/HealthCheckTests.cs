using System.Net;
using KvCluster.Client;
using KvCluster.Tests.Node;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Hosting;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Diagnostics.HealthChecks;
using Microsoft.Extensions.Logging;

namespace KvCluster.Tests.Client;

/// <summary>The health check of a program that uses a cluster: whether the cluster answers it.</summary>
public sealed class HealthCheckTests
{
    /// <summary>A real host over a real node, as a load balancer sees it.</summary>
    [Fact]
    public async Task Endpoint_OfAProgram_IsHealthyWhileTheClusterAnswers()
    {
        await using var nodes = await NodeCluster.StartAsync(1);
        Task stopping;
        await using (var program = await ProgramAsync(nodes.AddressOf(1)))
        {
            using var http = new HttpClient { BaseAddress = new Uri(program.Urls.Single()) };
            // On a busy machine a ping may take longer than its time.
            await Eventually.TrueAsync(async () => await StatusAsync(http) == HttpStatusCode.OK, "the program is healthy");
            stopping = nodes.StopNodeAsync(1);
            await Eventually.TrueAsync(async () => await StatusAsync(http) == HttpStatusCode.ServiceUnavailable, "the program is unhealthy");
        }
        await stopping;
    }

    [Fact]
    public async Task Check_SaysHowLongTheAnswerTookOrWhyThereWasNone()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var provider = Services(options =>
        {
            options.Endpoints = [cluster.Endpoint];
            options.Timeout = Eventually.Limit;
        });
        var answered = await CheckAsync(provider, "kvcluster-orders");
        Assert.Equal(HealthStatus.Healthy, answered.Status);
        Assert.Matches(@"^The cluster answered in [0-9]+\.[0-9] ms\.$", answered.Description);
        Assert.Equal("ready", Assert.Single(answered.Tags));

        await using var alone = Services(static options =>
        {
            options.Endpoints = ["http://127.0.0.1:1"];
            options.Timeout = TimeSpan.FromMilliseconds(400);
        });
        var away = await CheckAsync(alone, "kvcluster-orders");
        Assert.Equal(HealthStatus.Degraded, away.Status);
        Assert.StartsWith("NO_LEADER: ", away.Description, StringComparison.Ordinal);
        Assert.IsType<KvUnavailableException>(away.Exception);
    }

    /// <summary>An exception of what makes a check ends all checks, and the program would be unhealthy without a reason.</summary>
    [Fact]
    public async Task Check_OfAClientWithInvalidOptions_FailsAlone()
    {
        await using var provider = Services(static options => options.Endpoints = []);
        var invalid = await CheckAsync(provider, "kvcluster-orders");
        Assert.Equal(HealthStatus.Degraded, invalid.Status);
        Assert.Contains("Endpoints is empty", invalid.Description, StringComparison.Ordinal);
        Assert.Equal(HealthStatus.Healthy, (await CheckAsync(provider, "other")).Status);
    }

    private static async Task<WebApplication> ProgramAsync(string endpoint)
    {
        var builder = WebApplication.CreateSlimBuilder();
        builder.Logging.ClearProviders();
        builder.WebHost.UseUrls("http://127.0.0.1:0");
        builder.Services.AddKvCluster(options =>
        {
            options.Endpoints = [endpoint];
            options.Timeout = TimeSpan.FromSeconds(2);
        });
        builder.Services.AddHealthChecks().AddKvCluster();
        var program = builder.Build();
        program.MapHealthChecks("/health");
        await program.StartAsync();
        return program;
    }

    private static async Task<HttpStatusCode> StatusAsync(HttpClient http)
    {
        using var answer = await http.GetAsync(new Uri("/health", UriKind.Relative));
        return answer.StatusCode;
    }

    private static ServiceProvider Services(Action<KvClientOptions> configure)
    {
        var services = new ServiceCollection();
        services.AddLogging();
        services.AddKvCluster("orders", configure);
        services.AddHealthChecks()
            .AddKvCluster("orders", failureStatus: HealthStatus.Degraded, tags: ["ready"])
            .AddCheck("other", static () => HealthCheckResult.Healthy());
        return services.BuildServiceProvider();
    }

    private static async Task<HealthReportEntry> CheckAsync(ServiceProvider provider, string name) =>
        (await provider.GetRequiredService<HealthCheckService>().CheckHealthAsync()).Entries[name];
}
