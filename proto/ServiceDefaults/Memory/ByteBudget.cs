// Counts the bytes of calls that a process holds. Any thread. Taking and returning is one atomic addition each, so streams take pieces (StreamBudget).
namespace KvCluster.ServiceDefaults.Memory;

/// <summary>Limits the number of bytes held at a time.</summary>
internal sealed class ByteBudget(long bytesMax)
{
    /// <summary>
    /// The maximum size of what counts as small. The last quarter of the budget is reserved for it, so that large requests do not block small ones.
    /// </summary>
    public const int SmallBytes = 64 << 10;

    private long _taken;

    /// <summary>Number of bytes taken.</summary>
    public long Taken => Volatile.Read(ref _taken);

    /// <summary>The part that is not reserved for small ones.</summary>
    public long LargeBytesMax => bytesMax - (bytesMax / 4);

    /// <summary>Whether more than half is taken. Whoever holds bytes that it does not need should then release them.</summary>
    public bool IsShort => Taken > bytesMax / 2;

    /// <summary>Takes bytes if there is room for them.</summary>
    public bool TryTake(long bytes, bool isSmall)
    {
        if (Interlocked.Add(ref _taken, bytes) <= (isSmall ? bytesMax : LargeBytesMax))
            return true;
        Interlocked.Add(ref _taken, -bytes);
        return false;
    }

    /// <summary>Takes bytes even if there is no room, for answers that must be sent, for example that a change was applied.</summary>
    public void Take(long bytes) => Interlocked.Add(ref _taken, bytes);

    public void GiveBack(long bytes) => Interlocked.Add(ref _taken, -bytes);
}
