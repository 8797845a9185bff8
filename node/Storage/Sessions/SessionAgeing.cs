using KvCluster.Storage.Pages;
using KvCluster.Storage.Writer;

namespace KvCluster.Storage.Sessions;

/// <summary>
/// Decides on the leader which sessions end: those that were idle for too long by shard time and, when there are too many, the longest
/// idle. The ends go into a record, so that every replica ends the same. Writer executor.
/// </summary>
/// <remarks>A session is idle from the last result on, so one whose request was in this record or a recent one never ends with it.</remarks>
internal sealed class SessionAgeing(StoreOptions options)
{
    /// <summary>Bounds what ageing adds to one record.</summary>
    private const int EndsPerRecordMax = 64;

    private static readonly TimeSpan LookInterval = TimeSpan.FromMinutes(1);
    private static readonly TimeSpan LookIntervalWhenFull = TimeSpan.FromSeconds(1);
    private readonly List<(long ActiveMicroseconds, UInt128 Session)> _idle = [];
    private long _lookAt;

    /// <summary>Whether another session may be opened; if not, the next record ends idle ones.</summary>
    public bool HasRoom(WriteBatch batch) => SessionTable.Count(batch) < (ulong)options.SessionsMax;

    /// <summary>Appends the ends that are due to a payload, at most one look an interval of shard time.</summary>
    public void Collect(WriteBatch batch, long shardTime, ByteBuffer payload)
    {
        var isFull = !HasRoom(batch);
        if (shardTime < _lookAt && !(isFull && shardTime >= _lookAt - Microseconds(LookInterval - LookIntervalWhenFull)))
            return;
        _idle.Clear();
        SessionTable.ListIdle(batch, shardTime - Microseconds(isFull ? options.SessionIdleMin : options.SessionIdleMax), _idle);
        _idle.Sort();
        var count = Math.Min(_idle.Count, EndsPerRecordMax);
        for (var index = 0; index < count; index++)
            Operations.SessionEnd(payload, _idle[index].Session);
        _lookAt = count < _idle.Count ? shardTime : shardTime + Microseconds(LookInterval);
    }

    private static long Microseconds(TimeSpan time) => time.Ticks / TimeSpan.TicksPerMicrosecond;
}
