using KvCluster.Client;
using KvCluster.Testing;

namespace KvCluster.Tests.Client.Recipes;

/// <summary>The recipes over the client in memory, with which the tests of programs that use them run.</summary>
public sealed class RecipesInMemoryTests
{
    [Fact]
    public async Task Recipes_TakeTheClientInMemory()
    {
        await using var client = new InMemoryKvClient();
        await client.UpdateAsync("count", static old => KvValue.FromInt64((old?.ToInt64() ?? 0) + 1));
        await using var cache = new KvCache(client, "c/");
        await using (var held = await KvLock.AcquireAsync(client, "lock"))
        {
            Assert.Null(await KvLock.TryAcquireAsync(client, "lock"));
            var written = await client.WriteAsync(new KvWrite().If(held.Held).Put("c/1", "guarded"));
            Assert.True((await cache.WaitForAsync(written.Position)).TryGet("c/1", out _));
        }
        var election = new KvElection(client, "leader");
        await election.RunAsync("me", async (leadership, _) => Assert.Equal(new KvLeader("me", leadership.FencingEtag), await election.FindLeaderAsync()));
        Assert.Null(await election.FindLeaderAsync());

        var queue = new KvQueue(client, "q/");
        Assert.Null(await queue.TryReceiveAsync());
        var receiving = queue.ReceiveAsync().AsTask();
        var id = await queue.EnqueueAsync("work");
        await using var job = await receiving;
        await client.WriteAsync(job.CompleteIn(new KvWrite().Delete("c/1")));
        Assert.Equal((id, 0L), (job.Id, await queue.CountAsync()));
        var removed = await client.DeleteRangeAsync(new KvRange { All = true });
        Assert.Empty((await cache.WaitForAsync(removed.Position)).Entries);
    }

    /// <summary>Its keys live by the clock of the test, and so a worker that has gone loses its job when the test says so.</summary>
    [Fact]
    public async Task Leases_EndByTheClockOfTheTest()
    {
        var time = new ManualTime();
        await using var client = new InMemoryKvClient(new InMemoryKvOptions { Time = time });
        var queue = new KvQueue(client, "q/");
        await queue.EnqueueAsync("work", TimeSpan.FromMinutes(1));
        Assert.Null(await queue.TryReceiveAsync());
        time.Advance(TimeSpan.FromMinutes(1));
        await using var gone = await queue.ReceiveAsync();
        await gone.DisposeAsync();
        var receiving = queue.ReceiveAsync().AsTask();
        time.Advance(TimeSpan.FromMinutes(1));
        await using var job = await receiving.WaitAsync(Eventually.Limit);
        Assert.Equal((gone.Id, 2L), (job.Id, job.Attempt));
    }
}
