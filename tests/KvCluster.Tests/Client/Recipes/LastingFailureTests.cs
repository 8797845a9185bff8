using System.Net;
using KvCluster.Client;
using KvCluster.Tests.Node;
using KvCluster.Tests.Node.Watching;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Hosting;
using Microsoft.AspNetCore.Http;
using Microsoft.AspNetCore.Server.Kestrel.Core;
using Microsoft.Extensions.Logging;

namespace KvCluster.Tests.Client.Recipes;

/// <summary>Recipes that go on by themselves end where no repetition can succeed. They tried for ever, and nobody was told.</summary>
public sealed class LastingFailureTests
{
    [Theory]
    [InlineData(StatusCodes.Status401Unauthorized, false)]
    [InlineData(StatusCodes.Status403Forbidden, true)]
    [InlineData(StatusCodes.Status404NotFound, false)]
    [InlineData(StatusCodes.Status404NotFound, true)]
    public async Task Recipes_WhereCallsAreRefusedForGood_EndWithTheFailure(int httpStatus, bool gateway)
    {
        var builder = WebApplication.CreateSlimBuilder();
        builder.Logging.ClearProviders();
        builder.WebHost.ConfigureKestrel(static kestrel => kestrel.Listen(IPAddress.Loopback, 0, static listen => listen.Protocols = HttpProtocols.Http2));
        await using var server = builder.Build();
        server.Run(context =>
        {
            context.Response.StatusCode = httpStatus;
            return Task.CompletedTask;
        });
        await server.StartAsync();
        await EndAsync(server.Urls.Single(), gateway);
    }

    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public Task Recipes_WithAnUnknownHost_EndWithTheFailure(bool gateway) => EndAsync("http://no-such-host.invalid:7400", gateway);

    /// <summary>In a network that gives addresses away again, a client learns of it late. The map tells it where its node is now.</summary>
    [Fact]
    public async Task Cache_WhoseNodeAnswersForAnotherCluster_GoesOnWhenItIsTheirsAgain()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.AddressOf(1)], Timeout = Eventually.Limit });
        using var streams = new BreakingStreams { BreaksLeft = 1, Refusal = ClusterHeader.Refusal("ours", "theirs") };
        await using var watcher = streams.Client(cluster.AddressOf(1));
        await using var cache = new KvCache(watcher, "c/");
        await cache.WhenCompleteAsync().AsTask().WaitAsync(Eventually.Limit);
        await Eventually.TrueAsync(
            async () =>
            {
                var put = await client.PutAsync("c/1", "v");
                return (await cache.WaitForAsync(put.Position).AsTask().WaitAsync(Eventually.Limit)).Entries.Count == 1 && streams.BreaksLeft == 0;
            },
            "the stream has been opened again");
    }

    /// <summary>A router's address is what the program was told. Another cluster's answers there are no news of its keys.</summary>
    [Fact]
    public async Task Cache_WhoseRouterAnswersForAnotherCluster_EndsWithTheFailure()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        using var streams = new BreakingStreams { BreaksLeft = 1, MessagesMax = 0, Refusal = ClusterHeader.Refusal("ours", "theirs") };
        await using var watcher = streams.GatewayClient(cluster.AddressOf(1));
        await using var cache = new KvCache(watcher, "c/");
        var failure = await Assert.ThrowsAsync<KvException>(() => cache.WhenCompleteAsync().AsTask().WaitAsync(Eventually.Limit));
        Assert.Equal(KvReasons.ForeignCluster, failure.Reason);
    }

    private static async Task EndAsync(string endpoint, bool gateway)
    {
        await using var client = new KvClient(new KvClientOptions { Endpoints = [endpoint], Gateway = gateway, Timeout = Eventually.Limit });
        var election = new KvElection(client, "leader");
        await using var cache = new KvCache(client, "c/");
        await using var leaders = election.WatchLeaderAsync().GetAsyncEnumerator();
        Task[] recipes =
        [
            election.RunAsync("me", static (_, _) => Task.CompletedTask),
            leaders.MoveNextAsync().AsTask(),
            cache.WhenCompleteAsync().AsTask(),
            new KvQueue(client, "q/").RunAsync(static (_, _) => Task.CompletedTask),
            KvLock.AcquireAsync(client, "lock").AsTask(),
            KvLiveSession.OpenAsync(client, "session", TimeSpan.FromSeconds(10)).AsTask(),
        ];
        foreach (var recipe in recipes)
        {
            var failure = await Assert.ThrowsAnyAsync<KvException>(() => recipe.WaitAsync(Eventually.Limit));
            Assert.True(failure.IsLasting(), $"{failure.Reason}: {failure.Message}");
        }
    }
}
