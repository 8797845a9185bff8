namespace KvCluster.Tests.Grpc;

/// <summary>What something allocates on all threads of the process, in which other tests run at the same time: the least of several runs, as others only add to it.</summary>
internal static class LeastAllocated
{
    private const int RunsMax = 50;

    /// <summary>Fails if no run allocates so little.</summary>
    public static async Task IsAtMostAsync(long bytes, Func<Task> run)
    {
        var least = long.MaxValue;
        for (var number = 0; number < RunsMax && least > bytes; number++)
        {
            var before = GC.GetTotalAllocatedBytes();
            await run();
            least = Math.Min(least, GC.GetTotalAllocatedBytes() - before);
        }
        Assert.InRange(least, 0, bytes);
    }
}
