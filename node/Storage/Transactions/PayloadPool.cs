using System.Collections.Concurrent;
using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Transactions;

/// <summary>
/// The buffers in which stores gather the operations of a transaction. A store has one only during a step, so there are as many as writer threads, whatever
/// the number of shards. Any thread.
/// </summary>
internal static class PayloadPool
{
    private const int BytesMin = 64 << 10;

    /// <summary>A buffer that is larger than an ordinary batch needs is not kept.</summary>
    private const int BytesKept = 2 << 20;

    private static readonly ConcurrentBag<ByteBuffer> _free = [];

    /// <summary>An empty buffer. The caller returns it.</summary>
    public static ByteBuffer Rent() => _free.TryTake(out var buffer) ? buffer : new ByteBuffer(BytesMin);

    /// <summary>Returns a buffer.</summary>
    public static void Return(ByteBuffer buffer)
    {
        buffer.Clear(BytesKept);
        _free.Add(buffer);
    }
}
