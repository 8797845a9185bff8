namespace KvCluster.Node.Shards.Context;

/// <summary>
/// Bounds how often a node's replicas together do what each of them would do once in an interval. If there are many of them, each waits for several intervals.
/// Any thread.
/// </summary>
/// <param name="ofInterval">How many may do it in one interval.</param>
internal sealed class SharedPace(int ofInterval)
{
    private int _count;

    /// <summary>Each of them does it in one of so many intervals.</summary>
    public int Every => Math.Max(1, (Volatile.Read(ref _count) + ofInterval - 1) / ofInterval);

    /// <summary>A replica is one of them from now on, or is no longer.</summary>
    public void Count(bool isOne) => Interlocked.Add(ref _count, isOne ? 1 : -1);
}
