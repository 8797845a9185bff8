using System.Collections.Concurrent;
using KvCluster.Storage.Files;

namespace KvCluster.Storage.Journal;

/// <summary>
/// The buffers that journal writes go through. A lane has one only while it writes, so there are as many as executors that write, however many
/// shards there are. Any thread.
/// </summary>
internal static class StagingPool
{
    private static readonly ConcurrentBag<AlignedBuffer> _free = [];

    /// <summary>A buffer of <see cref="JournalWrite.BytesMax"/> bytes with any content; to be given back.</summary>
    public static AlignedBuffer Rent() => _free.TryTake(out var buffer) ? buffer : new AlignedBuffer(JournalWrite.BytesMax);

    /// <summary>Gives it back.</summary>
    public static void Return(AlignedBuffer buffer) => _free.Add(buffer);
}
