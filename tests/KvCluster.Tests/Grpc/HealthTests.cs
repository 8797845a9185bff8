using Grpc.Core;
using Grpc.Health.V1;
using KvCluster.ServiceDefaults.Hosting;
using Microsoft.AspNetCore.Builder;
using Microsoft.Extensions.DependencyInjection;
using ServingStatus = Grpc.Health.V1.HealthCheckResponse.Types.ServingStatus;

namespace KvCluster.Tests.Grpc;

public sealed class HealthTests
{
    [Fact]
    public async Task Check_ServerNotYetServing_ReportsNotServing()
    {
        await using var server = await StartAsync(new GrpcHealth());
        Assert.Equal(ServingStatus.NotServing, (await Client(server).CheckAsync(new HealthCheckRequest())).Status);
    }

    [Fact]
    public async Task Check_UnknownService_IsNotFound()
    {
        await using var server = await StartAsync(new GrpcHealth());
        var failure = await Assert.ThrowsAsync<RpcException>(async () => await Client(server).CheckAsync(new HealthCheckRequest { Service = "other" }));
        Assert.Equal(StatusCode.NotFound, failure.StatusCode);
    }

    /// <summary>
    /// The status repeated the name, percent-encoded as a header. Three requests of 17 KB, with compressed names of 16 MB, cost a node 600 MB.
    /// </summary>
    [Fact]
    public async Task Check_UnknownServiceWithALongName_IsNotRepeated()
    {
        await using var server = await StartAsync(new GrpcHealth());
        var failure = await Assert.ThrowsAsync<RpcException>(
            async () => await Client(server).CheckAsync(new HealthCheckRequest { Service = new string('\u0001', 1 << 20) }));
        Assert.Equal((StatusCode.NotFound, "This server has no service of that name."), (failure.StatusCode, failure.Status.Detail));
    }

    [Fact]
    public async Task Watch_UntilTheStop_SeesEachChangeAndEnds()
    {
        var health = new GrpcHealth();
        await using var server = await StartAsync(health);
        using var watch = Client(server).Watch(new HealthCheckRequest { Service = "kv" });
        await NextIs(ServingStatus.ServiceUnknown);
        health.SetStatus("kv", ServingStatus.Serving);
        await NextIs(ServingStatus.Serving);
        health.SetStatus("other", ServingStatus.Serving);
        health.Stop();
        await NextIs(ServingStatus.NotServing);
        var failure = await Assert.ThrowsAsync<RpcException>(() => watch.ResponseStream.MoveNext());
        Assert.Equal(StatusCode.Unavailable, failure.StatusCode);

        async Task NextIs(ServingStatus expected)
        {
            Assert.True(await watch.ResponseStream.MoveNext());
            Assert.Equal(expected, watch.ResponseStream.Current.Status);
        }
    }

    [Fact]
    public async Task Watch_OfAProcessThatIsFollowed_SeesWhetherItIsReady()
    {
        var health = new GrpcHealth();
        string? reason = "it is starting";
        health.Follow(() => reason);
        await using var server = await StartAsync(health);
        using var watch = Client(server).Watch(new HealthCheckRequest());
        await LooksAsync(ServingStatus.NotServing, "it is starting");
        await LooksAsync(ServingStatus.Serving, null);
        await LooksAsync(ServingStatus.NotServing, "it is draining");

        async Task LooksAsync(ServingStatus expected, string? now)
        {
            reason = now;
            health.Look();
            Assert.True(await watch.ResponseStream.MoveNext());
            Assert.Equal(expected, watch.ResponseStream.Current.Status);
        }
    }

    private static Health.HealthClient Client(EchoServer server) => new(server.Channel);

    private static Task<EchoServer> StartAsync(GrpcHealth health) => EchoServer.StartAsync(
        configureServices: services => services.AddSingleton(health),
        map: app => app.MapGrpcService<GrpcHealth>());
}
