namespace KvCluster.Tests;

/// <summary>Measures what a thread allocates.</summary>
internal static class Allocations
{
    /// <summary>
    /// What no measure can tell from nothing, in bytes. The runtime hands a thread its memory in contexts of this size and counts the unused rest of one as
    /// allocated when a collection takes it away, also a collection for another test. So what must allocate nothing is done at least some thousand times, and
    /// an object at each time is far more than this.
    /// </summary>
    public const long Context = 8_192;

    /// <summary>The bytes that this thread allocates in an action that stays on it.</summary>
    public static long Of(Action action)
    {
        var before = GC.GetAllocatedBytesForCurrentThread();
        action();
        return GC.GetAllocatedBytesForCurrentThread() - before;
    }
}
