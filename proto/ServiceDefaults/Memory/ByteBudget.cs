// Bytes of calls that a process holds at a time. Any thread; taking and giving back is one atomic addition, so streams take in pieces (BudgetShare).
namespace KvCluster.ServiceDefaults.Memory;

/// <summary>A number of bytes that may be held at a time.</summary>
internal sealed class ByteBudget(long bytesMax)
{
    /// <summary>What counts as small: the last quarter of the budget is kept for it, so that those who ask for much do not stop those who ask for little.</summary>
    public const int SmallBytes = 64 << 10;

    private long _taken;

    /// <summary>Bytes that are taken.</summary>
    public long Taken => Volatile.Read(ref _taken);

    /// <summary>What is not kept for small ones.</summary>
    public long LargeBytesMax => bytesMax - (bytesMax / 4);

    /// <summary>Half of it is taken: whoever holds bytes without need is to let go.</summary>
    public bool IsShort => Taken > bytesMax / 2;

    /// <summary>Takes bytes if there is room for them.</summary>
    public bool TryTake(long bytes, bool isSmall)
    {
        if (Interlocked.Add(ref _taken, bytes) <= (isSmall ? bytesMax : LargeBytesMax))
            return true;
        Interlocked.Add(ref _taken, -bytes);
        return false;
    }

    /// <summary>Takes bytes in any case: of answers that must be given, as that a change was applied.</summary>
    public void Take(long bytes) => Interlocked.Add(ref _taken, bytes);

    public void GiveBack(long bytes) => Interlocked.Add(ref _taken, -bytes);
}
