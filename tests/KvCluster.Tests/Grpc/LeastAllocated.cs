namespace KvCluster.Tests.Grpc;

/// <summary>
/// Measures what a function allocates, on all threads of the process. Other tests run at the same time and only add to it, so the smallest of several
/// runs counts.
/// </summary>
internal static class LeastAllocated
{
    private const int RunsMax = 50;

    /// <summary>Fails if no run allocates that little.</summary>
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
