namespace KvCluster.Node.Runtime;

/// <summary>Counts unexpected exceptions in the background loops of a process. Each is a bug, and its loop continues. Any thread.</summary>
internal static class LoopFailures
{
    private static long _total;

    /// <summary>The number in this process so far.</summary>
    public static long Total => Volatile.Read(ref _total);

    public static void Count() => Interlocked.Increment(ref _total);
}
