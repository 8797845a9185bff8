using KvCluster.Client;
using KvCluster.Extensions.DistributedLock;
using KvCluster.Tests.Node;
using Medallion.Threading;

namespace KvCluster.Tests.Client.Recipes;

/// <summary>The locks behind the interfaces of DistributedLock, as programs use them that know no other.</summary>
public sealed class DistributedLockTests
{
    [Fact]
    public async Task Locks_OfAProvider_AreHeldByOneAtATime()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.AddressOf(1)], Timeout = Eventually.Limit });
        IDistributedLockProvider locks = new KvDistributedLockProvider(client, "locks/", new KvLockOptions { Lifetime = TimeSpan.FromHours(1) });
        Assert.Equal("a", locks.CreateLock("a").Name);
        await using (var held = await locks.AcquireLockAsync("a"))
        {
            Assert.True((await client.GetAsync("locks/a")).Found);
            Assert.False(held.HandleLostToken.IsCancellationRequested);
            Assert.Null(await locks.TryAcquireLockAsync("a"));
            await Assert.ThrowsAsync<TimeoutException>(() => locks.AcquireLockAsync("a", TimeSpan.FromMilliseconds(20)).AsTask());
            await using var other = await locks.TryAcquireLockAsync("b", TimeSpan.FromSeconds(1));
            Assert.NotNull(other);
            var guarded = ((KvDistributedLockHandle)held).Lock;
            await client.WriteAsync(new KvWrite().If(guarded.Held).Put("guarded", "by the holder"));
        }
        Assert.False((await client.GetAsync("locks/a")).Found);
        await using var again = await locks.TryAcquireLockAsync("a", Timeout.InfiniteTimeSpan);
        Assert.NotNull(again);
    }

    [Fact]
    public async Task Locks_WithoutAsync_AreHeldByOneAtATime()
    {
        const int holders = 4;
        await using var cluster = await NodeCluster.StartAsync(1);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.AddressOf(1)], Timeout = Eventually.Limit });
        var locks = new KvDistributedLockProvider(client, "locks/", new KvLockOptions { Lifetime = TimeSpan.FromHours(1) });
        var (count, most) = (0, 0);
        var threads = Enumerable.Range(0, holders).Select(_ => new Thread(() =>
        {
            for (var round = 0; round < 3; round++)
            {
                using var held = locks.AcquireLock("a");
                most = Math.Max(most, Interlocked.Increment(ref count));
                Thread.Yield();
                Interlocked.Decrement(ref count);
            }
        })).ToList();
        threads.ForEach(static thread => thread.Start());
        threads.ForEach(static thread => thread.Join());
        Assert.Equal(1, most);
        Assert.Throws<ArgumentException>(() => new KvDistributedLockProvider(client, default));
        var last = locks.CreateLock("a").TryAcquire();
        Assert.NotNull(last);
        last.Dispose();
        Assert.True(last.HandleLostToken.IsCancellationRequested);
        Assert.False((await client.GetAsync("locks/a")).Found);
    }
}
