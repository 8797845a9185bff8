namespace KvCluster.Node.Runtime;

/// <summary>Counts exceptions that nobody expects in what a process does again and again: each is a bug, and its loop goes on. Any thread.</summary>
internal static class LoopFailures
{
    private static long _total;

    /// <summary>Of this process so far.</summary>
    public static long Total => Volatile.Read(ref _total);

    public static void Count() => Interlocked.Increment(ref _total);
}
