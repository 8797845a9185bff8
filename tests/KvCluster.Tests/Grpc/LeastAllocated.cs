namespace KvCluster.Tests.Grpc;

/// <summary>
/// Measures what a function allocates, on all threads of the process. Threads of the runtime and of earlier tests only add to it, so the smallest of several
/// runs counts. For tests of <see cref="AloneCollection"/>: beside busy tests no run was undisturbed, and the measurement failed.
/// </summary>
internal static class LeastAllocated
{
    private const int RunsMax = 10;

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
