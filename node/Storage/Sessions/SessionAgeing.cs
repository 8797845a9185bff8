using KvCluster.Storage.Context;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.Sessions;

/// <summary>
/// Decides on the leader which sessions end: those that were idle for too long by shard time and, when there are too many, the longest
/// idle, and of who has the most where somebody with fewer opens one. The ends go into a record, so that every replica ends the same. Writer executor.
/// </summary>
/// <remarks>A session is idle from the last result on, so one whose request was in this record or a recent one never ends with it by its age.</remarks>
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

    /// <summary>
    /// The session that has to end so that another of an owner can be opened where there is no room; null: the owner has to wait until some have been idle for
    /// long enough. So many callers come to equal shares, nodes' callers first and then those that one of them names; nobody takes another's who has no more
    /// than itself.
    /// </summary>
    /// <param name="batch">The newest state.</param>
    /// <param name="owner">Who opens one.</param>
    /// <param name="results">Sessions with requests in the transaction that is being merged stay.</param>
    public static UInt128? FindUnfair(WriteBatch batch, SessionOwner owner, TransactionResults results)
    {
        var (peer, ofPeer) = SessionTable.GreatestPeer(batch);
        var isOther = peer != owner.Peer && ofPeer > SessionTable.CountOfPeer(batch, owner) + 1;
        var (greatest, ofGreatest) = SessionTable.GreatestOwner(batch, isOther ? peer : owner.Peer);
        return isOther || ofGreatest > SessionTable.CountOf(batch, owner) + 1 ? SessionTable.LongestIdle(batch, greatest, results) : null;
    }

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
