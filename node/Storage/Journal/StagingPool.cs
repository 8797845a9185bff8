using System.Collections.Concurrent;
using KvCluster.Storage.Files;

namespace KvCluster.Storage.Journal;

/// <summary>
/// The buffers for journal writes. A lane has one only while it writes, so there are as many as executors that write, whatever the number of shards. Any
/// thread.
/// </summary>
internal static class StagingPool
{
    private static readonly ConcurrentBag<AlignedBuffer> _free = [];

    /// <summary>A buffer of <see cref="DurableWrite.BytesMax"/> bytes with undefined content. The caller returns it.</summary>
    public static AlignedBuffer Rent() => _free.TryTake(out var buffer) ? buffer : new AlignedBuffer(DurableWrite.BytesMax);

    /// <summary>Returns a buffer.</summary>
    public static void Return(AlignedBuffer buffer) => _free.Add(buffer);
}
