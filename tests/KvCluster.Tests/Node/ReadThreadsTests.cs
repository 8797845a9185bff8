using KvCluster.Node.Api.Reads;

namespace KvCluster.Tests.Node;

/// <summary>
/// Where trees are read. A page that is not in memory blocks its thread for as long as the disk takes. 128 Gets over a disk that needed 200 ms for a
/// read blocked the thread pool for 20.9 seconds (all of its 15 threads were reading, and it adds one or two a second), and the node lost the shards
/// that it led.
/// </summary>
public sealed class ReadThreadsTests
{
    [Fact]
    public async Task EnterAsync_ManyReadsWaitingForTheDisk_LeaveTheThreadPoolFree()
    {
        const int HereMax = 3;
        const int Threads = 4;
        await using var reads = new ReadThreads(HereMax, Threads);
        reads.Run();
        using var disk = new ManualResetEventSlim();
        var (onPool, elsewhere) = (0, 0);
        var waiting = Enumerable.Range(0, 200).Select(_ => Task.Run(async () =>
        {
            var place = await reads.EnterAsync();
            try
            {
                Interlocked.Increment(ref Thread.CurrentThread.IsThreadPoolThread ? ref onPool : ref elsewhere);
                disk.Wait();
            }
            finally
            {
                await place.LeaveAsync();
            }
            Assert.True(Thread.CurrentThread.IsThreadPoolThread);
        })).ToList();
        await Eventually.TrueAsync(() => Volatile.Read(ref onPool) + Volatile.Read(ref elsewhere) == HereMax + Threads, "every place is taken");
        // The pool is free for everything else, and all reads have begun: nothing else waits there.
        await Task.WhenAll(Enumerable.Range(0, 100).Select(_ => Task.Run(static () => { })));
        Assert.Equal((HereMax, Threads), (Volatile.Read(ref onPool), Volatile.Read(ref elsewhere)));
        disk.Set();
        await Task.WhenAll(waiting);
        Assert.InRange(onPool, HereMax, 200 - Threads);
    }

    [Fact]
    public async Task TryEnterHere_WithPlaces_StaysOnTheCallingThread()
    {
        await using var reads = new ReadThreads(hereMax: 2, threads: 1);
        reads.Run();
        Assert.True(reads.TryEnterHere());
        Assert.True(reads.TryEnterHere());
        Assert.False(reads.TryEnterHere());
        reads.LeaveHere();
        var thread = Environment.CurrentManagedThreadId;
        var place = await reads.EnterAsync();
        Assert.Equal(thread, Environment.CurrentManagedThreadId);
        await place.LeaveAsync();
        Assert.Equal(thread, Environment.CurrentManagedThreadId);
        reads.LeaveHere();
    }

    [Fact]
    public async Task EnterAsync_Elsewhere_LeavesTheCallingThreadDespiteFreePlaces()
    {
        await using var reads = new ReadThreads(hereMax: 2, threads: 1);
        reads.Run();
        var place = await reads.EnterAsync(isElsewhere: true);
        Assert.False(Thread.CurrentThread.IsThreadPoolThread);
        Assert.True(reads.TryEnterHere() && reads.TryEnterHere());
        await place.LeaveAsync();
        Assert.True(Thread.CurrentThread.IsThreadPoolThread);
        Assert.False(reads.TryEnterHere());
    }

    // If threads that lose a race lost their place too, none would be left after some hours.
    [Fact]
    public async Task TryEnterHere_ByManyAtOnce_LosesNoPlace()
    {
        await using var reads = new ReadThreads(hereMax: 2, threads: 1);
        reads.Run();
        await Task.WhenAll(Enumerable.Range(0, 4).Select(_ => Task.Run(() =>
        {
            for (var turn = 0; turn < 50_000; turn++)
            {
                if (reads.TryEnterHere())
                    reads.LeaveHere();
            }
        })));
        Assert.True(reads.TryEnterHere() && reads.TryEnterHere());
        Assert.False(reads.TryEnterHere());
    }

    [Fact]
    public async Task Dispose_WithWaitingReads_RunsThemAndLaterOnesOnThePool()
    {
        var reads = new ReadThreads(hereMax: 0, threads: 1);
        reads.Run();
        using var disk = new ManualResetEventSlim();
        var waiting = Enumerable.Range(0, 10).Select(_ => ReadAsync(reads, disk.Wait)).ToList();
        var disposing = reads.DisposeAsync().AsTask();
        var later = ReadAsync(reads, static () => Assert.True(Thread.CurrentThread.IsThreadPoolThread));
        await later.WaitAsync(Eventually.Limit);
        Assert.False(disposing.IsCompleted);
        disk.Set();
        await Task.WhenAll([.. waiting, disposing]).WaitAsync(Eventually.Limit);
    }

    private static async Task ReadAsync(ReadThreads reads, Action read)
    {
        var place = await reads.EnterAsync();
        try
        {
            read();
        }
        finally
        {
            await place.LeaveAsync();
        }
    }
}
