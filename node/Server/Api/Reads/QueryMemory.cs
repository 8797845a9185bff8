using KvCluster.ServiceDefaults.Memory;

namespace KvCluster.Node.Api.Reads;

/// <summary>
/// What intersections hold until they are answered: copies of members, facets and answers. Bounded for each, for all together and in number, because a request
/// of some bytes may ask for hundreds of megabytes. Beside the parts of <see cref="CallMemory"/>, and as large as one of them. Any thread.
/// </summary>
/// <param name="bytesMax">Bytes for all together.</param>
internal sealed class QueryMemory(long bytesMax)
{
    /// <summary>Intersections with facets at a time. More would only take turns of the same threads.</summary>
    public const int FacetedMax = 64;

    private readonly ByteBudget _budget = new(bytesMax);
    private int _faceted;

    /// <summary>The part of a node with the given bound of all calls.</summary>
    /// <param name="callMemoryMebibytes">The setting <c>call-memory-mib</c>.</param>
    public static QueryMemory For(int callMemoryMebibytes) => new(((long)callMemoryMebibytes << 20) / 4);

    /// <summary>Bytes that one of them may hold: all but what is left for small ones.</summary>
    public long BytesOfOneMax => _budget.LargeBytesMax;

    /// <summary>Bytes that are held.</summary>
    public long Taken => _budget.Taken;

    /// <summary>Takes bytes if there is room for them.</summary>
    /// <param name="bytes">How many more.</param>
    /// <param name="holds">How many the query has already.</param>
    public bool TryTake(long bytes, long holds) => _budget.TryTake(bytes, isSmall: holds + bytes <= ByteBudget.SmallBytes);

    /// <summary>Returns bytes.</summary>
    public void GiveBack(long bytes) => _budget.GiveBack(bytes);

    /// <summary>Whether one more intersection with facets may begin. If so, <see cref="LeaveFaceted"/> must follow.</summary>
    public bool TryEnterFaceted()
    {
        if (Interlocked.Increment(ref _faceted) <= FacetedMax)
            return true;
        LeaveFaceted();
        return false;
    }

    /// <summary>It has ended.</summary>
    public void LeaveFaceted() => Interlocked.Decrement(ref _faceted);
}
