using System.Collections.Concurrent;
using System.Diagnostics;
using KvCluster.Client;
using KvCluster.Testing;
using KvCluster.Tests.Node;
using KvCluster.V1;

namespace KvCluster.Tests.Client.Recipes;

/// <summary>Queues: each job is handed out until it is done, and what it makes is there once.</summary>
public sealed class KvQueueTests
{
    private static readonly TimeSpan Hour = TimeSpan.FromHours(1);
    private static readonly QueueKeys Keys = new("q/");

    /// <summary>Handlers fail, lose their jobs and go on, and the leader of the shard stops meanwhile.</summary>
    [Fact]
    public async Task Jobs_OfManyWorkers_HaveTheirEffectOnce_WhileTheLeaderStops()
    {
        const int jobs = 60;
        await using var cluster = await NodeCluster.StartAsync(3);
        var leader = await cluster.LeaderOfAsync(0);
        await using var client = ClientOf(cluster, 1, 2, 3);
        var options = new KvQueueOptions { LeaseTime = TimeSpan.FromSeconds(5), RetryDelay = TimeSpan.FromMilliseconds(5), AttemptsMax = 100 };
        var queues = Enumerable.Range(0, 3).Select(_ => new KvQueue(client, "q/", options)).ToArray();
        var handled = new ConcurrentDictionary<string, int>();
        using var ended = new CancellationTokenSource();
        var running = queues.Select(queue => queue.RunAsync(HandleAsync, parallel: 3, ended.Token)).ToArray();
        for (var order = 0; order < jobs; order++)
        {
            // The order is placed twice, and is there once, with its job.
            for (var time = 0; time < 2; time++)
            {
                var write = new KvWrite().If(KvCondition.Absent($"order/{order}")).Put($"order/{order}", "placed");
                queues[0].EnqueueIn(write, $"{order}", time == 0 ? default : Hour);
                var placing = client.WriteAsync(write).AsTask();
                if (time == 0)
                    await placing;
                else
                    await Assert.ThrowsAsync<KvConditionFailedException>(() => placing);
            }
            if (order == jobs / 2)
                await cluster.StopNodeAsync(leader);
        }
        await Eventually.TrueAsync(
            async () => await queues[0].CountAsync() == 0 || Array.Exists(running, static one => one.IsCompleted), "all jobs are done");
        await ended.CancelAsync();
        foreach (var one in running)
            await Assert.ThrowsAnyAsync<OperationCanceledException>(() => one);
        Assert.Equal(jobs, (await client.GetAsync("sum")).Value.ToInt64());
        Assert.Equal(jobs, handled.Count);
        Assert.Empty(await queues[0].DeadJobsAsync().ToListAsync());
        // Nothing is left of jobs that are done.
        Assert.Equal(0, await client.CountAsync("q/"));

        async Task HandleAsync(KvJob job, CancellationToken handling)
        {
            var order = job.Payload.ToUtf8String();
            var times = handled.AddOrUpdate(order, 1, static (_, before) => before + 1);
            if (times == 1 && job.Id.GetHashCode() % 3 == 0)
                throw new InvalidOperationException("the first attempt fails");
            // As when the process had stood still, and another one had the job meanwhile.
            if (times == 1 && job.Id.GetHashCode() % 3 == 1)
                await client.DeleteAsync(Keys.Of(QueueKeys.Lease, job.Id), cancellationToken: handling);
            var write = new KvWrite().WithResults();
            write.Operations.Increment("sum");
            await client.WriteAsync(job.CompleteIn(write), cancellationToken: handling);
        }
    }

    [Fact]
    public async Task Job_WithADelay_IsReceivedAfterIt()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await using var client = ClientOf(cluster, 1);
        var queue = new KvQueue(client, "q/");
        await Eventually.LongEnoughAsync(TimeSpan.FromMilliseconds(300), async delay =>
        {
            var began = Stopwatch.GetTimestamp();
            var id = await queue.EnqueueAsync("later", delay);
            var early = await queue.TryReceiveAsync();
            // Otherwise the machine has stalled for so long.
            var isEarly = early is null;
            await using var job = early ?? await queue.ReceiveAsync();
            Assert.True(Stopwatch.GetElapsedTime(began) >= delay);
            Assert.Equal((id, "later", 1L), (job.Id, job.Payload.ToUtf8String(), job.Attempt));
            Assert.True(await job.CompleteAsync());
            Assert.True(job.Lost.IsCancellationRequested);
            return isEarly;
        });
        Assert.Equal(0, await queue.CountAsync());
    }

    /// <summary>Its clock stood still, too, so it does not even know that it may have lost the job.</summary>
    [Fact]
    public async Task Worker_ThatStoodStill_LosesItsJob_AndIsRefused()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await using var client = ClientOf(cluster, 1);
        var options = new KvQueueOptions { LeaseTime = TimeSpan.FromSeconds(1) };
        var stopped = new KvQueue(client, "q/", options, new ManualTime());
        var working = new KvQueue(client, "q/", new KvQueueOptions { LeaseTime = Hour });
        await stopped.EnqueueAsync("work");
        await using var former = await stopped.ReceiveAsync();
        await using var job = await working.ReceiveAsync();
        Assert.Equal((former.Id, 2L), (job.Id, job.Attempt));
        Assert.True(job.FencingEtag > former.FencingEtag);
        Assert.False(former.IsLost);
        await Assert.ThrowsAsync<KvConditionFailedException>(() => client.WriteAsync(former.CompleteIn(new KvWrite().Put("made", "twice"))).AsTask());
        Assert.Equal((false, false), (await former.ReleaseAsync(), await former.CompleteAsync()));
        await client.WriteAsync(job.CompleteIn(new KvWrite().Put("made", "once")));
        Assert.Equal("once", (await client.GetAsync("made")).Value.ToUtf8String());
        Assert.Equal(0, await client.CountAsync("q/"));
    }

    /// <summary>The exception came out of the completion, so that the caller took the job for one that is handed out again.</summary>
    [Fact]
    public async Task Job_WhoseCallbackThrows_IsCompleted_AndItsDisposalThrows()
    {
        await using var client = new InMemoryKvClient();
        var queue = new KvQueue(client, "q/");
        await queue.EnqueueAsync("work");
        var job = await queue.ReceiveAsync();
        job.Lost.Register(static () => throw new InvalidOperationException("the callback"));
        Assert.True(await job.CompleteAsync());
        Assert.Equal(0, await queue.CountAsync());
        Assert.False(await job.CompleteAsync());
        var thrown = await Assert.ThrowsAsync<AggregateException>(() => job.DisposeAsync().AsTask());
        Assert.IsType<InvalidOperationException>(thrown.GetBaseException());
    }

    [Fact]
    public async Task Job_IsKept_WhileItIsWorkedOn()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await using var client = ClientOf(cluster, 1);
        await Eventually.LongEnoughAsync(TimeSpan.FromSeconds(1), async lease =>
        {
            var queue = new KvQueue(client, "q/", new KvQueueOptions { LeaseTime = lease });
            await queue.EnqueueAsync("long");
            await using var job = await queue.ReceiveAsync();
            await Task.Delay(2 * lease);
            await using var again = await queue.TryReceiveAsync();
            await client.DeleteRangeAsync(new KvRange { Prefix = "q/" });
            // Otherwise the machine has stalled for so long.
            if (job.IsLost)
                return false;
            Assert.Null(again);
            return true;
        });
    }

    [Fact]
    public async Task Job_WhoseAnswersAreLost_IsReceivedOnce()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        var calls = 0;
        var network = new HostileNetwork
        {
            LosesAnswer = method => method is Method.Transact or Method.Write && Interlocked.Increment(ref calls) % 3 != 0,
        };
        await using var client = network.Client(cluster.AddressOf(1));
        var queue = new KvQueue(client, "q/", new KvQueueOptions { LeaseTime = Hour });
        for (var round = 0; round < 5; round++)
        {
            var id = await queue.EnqueueAsync("work");
            Assert.Equal(1, await queue.CountAsync());
            await using var job = await queue.ReceiveAsync();
            Assert.Equal((id, 1L), (job.Id, job.Attempt));
            Assert.True(await job.CompleteAsync());
        }
        Assert.Equal(0, await client.CountAsync("q/"));
    }

    [Fact]
    public async Task Job_ThatFailsTooOften_IsPutAside_AndCanBeRevived()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await using var client = ClientOf(cluster, 1);
        var queue = new KvQueue(client, "q/", new KvQueueOptions { AttemptsMax = 3, RetryDelay = TimeSpan.FromMilliseconds(1) });
        var id = await queue.EnqueueAsync("bad");
        var handled = 0;
        await RunUntilAsync(
            queue,
            (_, _) =>
            {
                handled++;
                throw new InvalidOperationException("it is bad");
            },
            async () => await queue.CountAsync() == 0);
        Assert.Equal(3, handled);
        var dead = Assert.Single(await queue.DeadJobsAsync().ToListAsync());
        Assert.Equal((id, "bad", "InvalidOperationException: it is bad"), (dead.Id, dead.Payload.ToUtf8String(), dead.Reason));
        Assert.Null(await queue.TryReceiveAsync());

        Assert.True(await queue.ReviveAsync(id));
        Assert.False(await queue.ReviveAsync(id));
        await using (var job = await queue.ReceiveAsync())
        {
            Assert.Equal((id, 1L), (job.Id, job.Attempt));
            Assert.True(await job.BuryAsync());
        }
        Assert.Null(Assert.Single(await queue.DeadJobsAsync().ToListAsync()).Reason);
        Assert.Equal((true, false), (await queue.RemoveDeadAsync(id), await queue.RemoveDeadAsync(id)));
        Assert.Equal(0, await client.CountAsync("q/"));
    }

    /// <summary>Of those who die with it nobody says that the job failed.</summary>
    [Fact]
    public async Task Job_WhoseWorkersDie_IsPutAside()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await using var client = ClientOf(cluster, 1);
        var queue = new KvQueue(client, "q/", new KvQueueOptions { AttemptsMax = 2 });
        var id = await queue.EnqueueAsync("deadly");
        for (var attempt = 1; attempt <= 2; attempt++)
        {
            await using var job = await queue.ReceiveAsync();
            Assert.Equal(attempt, job.Attempt);
            await job.DisposeAsync();
            // Its lease would end after half a minute.
            await client.DeleteAsync(Keys.Of(QueueKeys.Lease, id));
        }
        Assert.Null(await queue.TryReceiveAsync());
        Assert.Equal(id, Assert.Single(await queue.DeadJobsAsync().ToListAsync()).Id);
    }

    [Fact]
    public async Task Jobs_BehindManyThatWait_AreReceived()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await using var client = ClientOf(cluster, 1);
        var queue = new KvQueue(client, "q/");
        // Their ids come first, as after failed attempts.
        for (var write = 0; write < 6; write++)
        {
            var waiting = new KvWrite();
            for (var job = 0; job < 100; job++)
            {
                var id = queue.EnqueueIn(waiting, "waits");
                waiting.Put(Keys.Of(QueueKeys.Lease, id), default, new KvPutOptions { TimeToLive = Hour });
            }
            await client.WriteAsync(waiting);
        }
        Assert.Null(await queue.TryReceiveAsync());
        var received = queue.ReceiveAsync().AsTask();
        var last = await queue.EnqueueAsync("ready");
        await using var ready = await received;
        Assert.Equal((last, 601L), (ready.Id, await queue.CountAsync()));
    }

    [Fact]
    public async Task Queue_OfSeveralShards_IsRefused()
    {
        await using var cluster = await NodeCluster.StartAsync(1, (byte[])[.. "q/"u8, 0x19, (byte)'k']);
        await using var client = ClientOf(cluster, 1);
        var queue = new KvQueue(client, "q/");
        var refused = await Assert.ThrowsAsync<KvShardsDifferException>(() => queue.EnqueueAsync("later", Hour).AsTask());
        Assert.Equal("SHARDS_DIFFER", refused.Reason);
        refused = await Assert.ThrowsAsync<KvShardsDifferException>(() => queue.RunAsync(static (_, _) => Task.CompletedTask));
        Assert.Equal("SHARDS_DIFFER", refused.Reason);
        Assert.Equal(0, await client.CountAsync("q/"));
        Assert.Throws<ArgumentException>(() => new KvQueue(client, default));
        Assert.Throws<ArgumentException>(() => new KvQueue(client, "q/", new KvQueueOptions { AttemptsMax = 0 }));
    }

    private static KvClient ClientOf(NodeCluster cluster, params uint[] nodes) =>
        new(new KvClientOptions { Endpoints = [.. nodes.Select(cluster.AddressOf)], Timeout = Eventually.Limit });

    private static async Task RunUntilAsync(KvQueue queue, Func<KvJob, CancellationToken, Task> handle, Func<Task<bool>> isDone)
    {
        using var ended = new CancellationTokenSource();
        var running = queue.RunAsync(handle, cancellationToken: ended.Token);
        await Eventually.TrueAsync(async () => running.IsCompleted || await isDone(), "the jobs are handled");
        await ended.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => running);
    }
}
