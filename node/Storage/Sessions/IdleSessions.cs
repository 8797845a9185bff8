using KvCluster.Storage.Context;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.Sessions;

/// <summary>
/// Decides on the leader which sessions without a lifetime end: those that were idle for too long by shard time, and, when there are too many, the longest
/// idle. If an owner with fewer sessions opens one, a session of the owner with the most ends. The ends are part of a record, so every replica ends the same
/// sessions. Those with a lifetime end by <see cref="SessionLifetimes"/>. Writer executor.
/// </summary>
/// <remarks>Idle time counts from the last result, so a session with a request in this record or a recent one never ends by age.</remarks>
internal sealed class IdleSessions(StoreOptions options)
{
    /// <summary>Limits how many of them end in one record.</summary>
    private const int EndsPerRecordMax = 64;

    private static readonly TimeSpan LookInterval = TimeSpan.FromMinutes(1);
    private static readonly TimeSpan LookIntervalWhenFull = TimeSpan.FromSeconds(1);
    private readonly List<(long ActiveMicroseconds, UInt128 Session)> _idle = [];
    private long _lookAt;

    /// <summary>Whether another session may be opened. If not, the next record ends idle ones.</summary>
    public bool HasRoom(WriteBatch batch) => SessionTable.Count(batch) < (ulong)options.SessionsMax;

    /// <summary>
    /// Whether an owner may open another session with a lifetime. These end by their countdown only, so nobody makes room for another, and one owner gets no
    /// more than half.
    /// </summary>
    public bool HasRoomWithLifetime(WriteBatch batch, QuotaOwner owner) =>
        SessionTable.CountWithLifetime(batch) < (ulong)options.SessionsWithLifetimeMax
            && SessionTable.CountWithLifetimeOf(batch, owner) < ((ulong)options.SessionsWithLifetimeMax + 1) / 2;

    /// <summary>
    /// When there is no room, the session that has to end so that an owner can open another one. Null: the owner has to wait until some sessions have been
    /// idle for long enough. This gives callers equal shares, first among the peers and then among the owners that one peer names. No owner takes a
    /// session from one that has no more than itself.
    /// </summary>
    /// <param name="batch">The newest state.</param>
    /// <param name="owner">The owner that opens a session.</param>
    /// <param name="results">Sessions with requests in the transaction that is being merged; they are kept.</param>
    public static UInt128? FindUnfair(WriteBatch batch, QuotaOwner owner, TransactionResults results)
    {
        var (peer, ofPeer) = SessionTable.GreatestPeer(batch);
        var isOther = peer != owner.Peer && ofPeer > SessionTable.CountOfPeer(batch, owner) + 1;
        var (greatest, ofGreatest) = SessionTable.GreatestOwner(batch, isOther ? peer : owner.Peer);
        return isOther || ofGreatest > SessionTable.CountOf(batch, owner) + 1 ? SessionTable.LongestIdle(batch, greatest, results) : null;
    }

    /// <summary>
    /// Appends session ends that are due to a payload, at most <paramref name="endsMax"/>; the rest follow with the next record. Checks at most once per
    /// interval of shard time.
    /// </summary>
    public void Collect(WriteBatch batch, long shardTime, ByteBuffer payload, int endsMax)
    {
        var isFull = !HasRoom(batch);
        if (shardTime < _lookAt && !(isFull && shardTime >= _lookAt - Microseconds(LookInterval - LookIntervalWhenFull)))
            return;
        _idle.Clear();
        SessionTable.ListIdle(batch, shardTime - Microseconds(isFull ? options.SessionIdleMin : options.SessionIdleMax), _idle);
        _idle.Sort();
        var count = Math.Min(_idle.Count, Math.Min(endsMax, EndsPerRecordMax));
        for (var index = 0; index < count; index++)
            Operations.SessionEnd(payload, _idle[index].Session);
        _lookAt = count < _idle.Count ? shardTime : shardTime + Microseconds(LookInterval);
    }

    private static long Microseconds(TimeSpan time) => time.Ticks / TimeSpan.TicksPerMicrosecond;
}
