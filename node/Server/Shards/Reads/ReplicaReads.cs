using KvCluster.Node.Shards.Context;
using KvCluster.Replication;
using KvCluster.Replication.Leading;
using KvCluster.Storage.DataFile;
using Event = KvCluster.Replication.Protocol.Event;

namespace KvCluster.Node.Shards.Reads;

/// <summary>
/// Reads of a replica: under the lease, after a heartbeat round, after asking the leader, or once an etag is applied. Readers call it on any thread without a
/// lock, except to wait; the second half of the members belongs to the shard's writer executor.
/// </summary>
/// <param name="context">The clock.</param>
/// <param name="core">Provides the lease.</param>
/// <param name="journal">Provides the current store.</param>
/// <param name="published">Whether this replica serves.</param>
/// <param name="wake">Schedules a turn of the replica's event loop. Any thread.</param>
internal sealed class ReplicaReads(ShardReplicaContext context, ReplicaCore core, ReplicaJournalView journal, PublishedState published, Action wake)
{
    private readonly WaitingReads _waiting = new();
    private readonly WaitingReads _ofFollower = new();
    private readonly AppliedWaits _appliedWaits = new();
    private long _currentUs = long.MinValue;
    private bool _failedConditionsWait;
    private Etag _toldApplied;
    private volatile Action<bool>? _follower;
    private volatile bool _hasEnded;

    /// <summary>The lease under which reads need no round.</summary>
    public ReadLease Lease => core.Lease;

    /// <summary>Whether this replica serves and its lease lasts.</summary>
    public bool HasLease => published.IsServing && context.NowUs() < core.LeaseEndUs;

    /// <summary>
    /// How long, in microseconds, a snapshot opened from now on may be out of date, as far as this replica can know (kv.proto, Position.age_us). Null if it has
    /// not heard of a leader since its start.
    /// </summary>
    public ulong? AgeUs
    {
        get
        {
            if (HasLease)
                return 0;
            var currentUs = Volatile.Read(ref _currentUs);
            return currentUs == long.MinValue ? null : (ulong)Math.Max(0, context.NowUs() - currentUs);
        }
    }

    /// <summary>
    /// Opens a snapshot for a linearizable read that arrived before this call, if the lease covers it. The snapshot is taken first, then the
    /// lease is read, which must be of the same leadership. If false, await <see cref="ConfirmAsync"/> and then open a snapshot with
    /// <see cref="OpenSnapshot"/>.
    /// </summary>
    public bool TryOpenLinearizable(out ReadSnapshot snapshot)
    {
        snapshot = OpenSnapshot();
        if (IsCovered(snapshot))
            return true;
        snapshot.Dispose();
        snapshot = default;
        return false;
    }

    /// <summary>
    /// The second half of <see cref="TryOpenLinearizable"/>: whether the lease covers a snapshot that was opened after the read arrived. A snapshot from
    /// before this replica's present leadership is never covered, whatever happens between the two.
    /// </summary>
    public bool IsCovered(in ReadSnapshot snapshot) => published.IsServing && Lease.Covers(snapshot.Etag, context.NowUs());

    /// <summary>
    /// Confirms that this replica leads, by a heartbeat round that is sent after this call and shared by all waiting reads. A snapshot opened afterwards may
    /// answer. Null if it does not lead. Cancelling a wait does not affect the others.
    /// </summary>
    public Task<Etag?> ConfirmAsync(CancellationToken cancellationToken) =>
        published.IsServing ? JoinAsync(_waiting, cancellationToken) : Task.FromResult<Etag?>(null);

    /// <summary>
    /// Asks the leader for the committed etag, after this call and once for all waiting reads. A snapshot that has that etag may answer a linearizable read.
    /// Null if this replica leads, knows no leader, or got no answer. Cancelling a wait does not affect the others.
    /// </summary>
    public Task<Etag?> AskLeaderAsync(CancellationToken cancellationToken) => JoinAsync(_ofFollower, cancellationToken);

    /// <summary>Waits until this replica has applied an etag. False if the time is up or it has stopped.</summary>
    /// <param name="etag">The etag to wait for.</param>
    /// <param name="limit">The longest wait; <see cref="Timeout.InfiniteTimeSpan"/>: until the caller gives up.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    public ValueTask<bool> WaitForAppliedAsync(Etag etag, TimeSpan limit, CancellationToken cancellationToken) => HasApplied(etag)
        ? ValueTask.FromResult(true)
        : new ValueTask<bool>(_appliedWaits.JoinAsync(etag, wake, limit, cancellationToken));

    /// <summary>Whether a snapshot opened from now on has this etag.</summary>
    public bool HasApplied(Etag etag) => journal.Store.Pages.Roots.PublishedEtag >= etag;

    /// <summary>
    /// The shard's time at this moment, in milliseconds, as far as this replica knows it (<see cref="KvCluster.Storage.ReplicaStore.ShardTime"/>).
    /// </summary>
    // Rounded up, as at the beginning of a life, so that no answer shows more time left than the caller asked for.
    public ulong ShardTimeMs => (ulong)Math.Max(0, (journal.Store.ShardTime + 999) / 1_000);

    /// <summary>Opens a snapshot of the published state, whatever its age.</summary>
    public ReadSnapshot OpenSnapshot(bool forDigest = false) => journal.Store.OpenSnapshot(forDigest);

    /// <summary>
    /// Has somebody told each time that more is applied, with false, and at the end of the replica, perhaps twice, with true. There is one at a time; null:
    /// nobody any more.
    /// </summary>
    /// <param name="follower">Called on the writer executor, or once by this call. Must not block.</param>
    public void Follow(Action<bool>? follower)
    {
        _follower = follower;
        if (_hasEnded)
            follower?.Invoke(true);
    }

    // From here on: the writer executor only.

    /// <summary>Whether failed conditions, which are reads, may be answered now. Otherwise they wait for the next round.</summary>
    public bool MayAnswerConditions()
    {
        if (HasLease)
            return true;
        _failedConditionsWait = true;
        wake();
        return false;
    }

    /// <summary>Steps the events by which the reads that wait by now are confirmed.</summary>
    public void Ask(Action<Event> step)
    {
        if (_failedConditionsWait)
        {
            _failedConditionsWait = false;
            _waiting.JoinConditions(journal.Store.Writes.HeldReadAnswers);
        }
        if (_waiting.TryClose(out var readId))
            step(new Event.ReadArrived(readId));
        if (_ofFollower.TryClose(out readId))
            step(new Event.FollowerReadArrived(readId));
    }

    /// <summary>
    /// A round was answered. Releases only the failed conditions that were held before it was sent, because it confirms nothing for later ones.
    /// </summary>
    public void Confirm(long readIdLast) => journal.Store.Writes.ReleaseReadAnswers(_waiting.AnswerUpTo(readIdLast, journal.Store.Pages.Roots.PublishedEtag));

    /// <summary>This replica does not lead. Failed conditions need no release: they are answered when it stops leading.</summary>
    public void Refuse(long readIdLast) => _waiting.AnswerUpTo(readIdLast, etag: null);

    /// <summary>The leader named the committed etag; null: it did not answer.</summary>
    public void AnswerFollower(long readIdLast, Etag? committed) => _ofFollower.AnswerUpTo(readIdLast, committed);

    /// <summary>What is published by now is as new as the core's <see cref="ReplicaCore.CurrentUs"/> says.</summary>
    public void Advance(long currentUs) => Volatile.Write(ref _currentUs, Math.Max(_currentUs, currentUs));

    /// <summary>Releases the reads that wait for what is published by now, and tells who follows it.</summary>
    public void ReleaseApplied()
    {
        var applied = journal.Store.Pages.Roots.PublishedEtag;
        _appliedWaits.Release(applied);
        if (applied == _toldApplied)
            return;
        _toldApplied = applied;
        _follower?.Invoke(false);
    }

    /// <summary>The replica has ended: refuses all waiting reads and all that come later.</summary>
    public void RefuseAll()
    {
        _waiting.RefuseAll();
        _ofFollower.RefuseAll();
        _appliedWaits.RefuseAll();
        _hasEnded = true;
        _follower?.Invoke(true);
    }

    private Task<Etag?> JoinAsync(WaitingReads reads, CancellationToken cancellationToken)
    {
        var answer = reads.Join();
        wake();
        return answer.WaitAsync(cancellationToken);
    }
}
