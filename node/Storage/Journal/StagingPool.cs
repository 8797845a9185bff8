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
    private static readonly ConcurrentBag<AlignedBuffer> _freeLong = [];

    /// <summary>
    /// A buffer with undefined content, which the caller returns. It has <see cref="DurableWrite.BytesMax"/> bytes, or
    /// <see cref="DurableWrite.CallBytesMax"/> for a write that is longer than that.
    /// </summary>
    /// <param name="bytes">The length of the write.</param>
    public static AlignedBuffer Rent(int bytes)
    {
        var isLong = bytes > DurableWrite.BytesMax;
        return (isLong ? _freeLong : _free).TryTake(out var buffer)
            ? buffer
            : new AlignedBuffer(isLong ? DurableWrite.CallBytesMax : DurableWrite.BytesMax);
    }

    /// <summary>Returns a buffer.</summary>
    public static void Return(AlignedBuffer buffer) => (buffer.Length > DurableWrite.BytesMax ? _freeLong : _free).Add(buffer);
}
