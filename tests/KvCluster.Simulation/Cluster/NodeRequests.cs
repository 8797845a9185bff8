using System.Text;
using KvCluster.Node.Shards;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using PutTerms = KvCluster.Storage.Transactions.PutTerms;
using WriteRequest = KvCluster.Storage.Transactions.WriteRequest;

namespace KvCluster.Simulation.Cluster;

/// <summary>
/// Requests of a run's callers at a node: writes, and reads as <c>ReadOpener</c> of the API makes them. Waits are polled after each work item instead
/// of awaited.
/// </summary>
internal sealed class NodeRequests(ClusterRun run, ClusterNode node)
{
    // In thousandths of calls, for a bug that would otherwise show at once.
    private const int FaultyPermille = 100;

    // A thread that gets no processor time for some commits, or for a change of leaders.
    private const int StandInOneOf = 40;
    private const long StandShortUs = 20_000;
    private const long StandLongUs = 3_000_000;

    // A scan takes some milliseconds, during which states come and go.
    private const int ScanStepKeys = 8;
    private const long ScanRestUs = 20_000;

    /// <summary>Puts or deletes the keys, and puts the write's own key, if its condition holds.</summary>
    public void Put(ClusterWrite write, Action<WriteResult> done) => node.Events.Deliver(() =>
    {
        if (node.Replica is null)
            return;
        var request = WriteRequest.Rent();
        if (write.Condition is { } condition && !IsFaulty(InjectedBug.ConditionSkipped))
            request.AddCondition(ClusterData.Key(condition.Key), condition.Kind, condition.Etag, condition.Value);
        if (write.Range is { } range)
            request.DeleteRange(Encoding.UTF8.GetBytes(range.From), Encoding.UTF8.GetBytes(range.To));
        foreach (var key in write.Range is null ? write.Keys : [])
        {
            if (write.Deletes)
                request.Delete(ClusterData.Key(key));
            else
                request.Put(ClusterData.Key(key), write.Value);
        }

        request.Put(ClusterData.Marker(write.Id), ClusterData.Value(write.Id));
        if (write.IsIdentified && !IsFaulty(InjectedBug.OpenResultDropped))
            request.Identify(write.Session, write.Sequence, write.Sequence);
        node.Events.Poll(node.Replica.Writes.SubmitAsync(request).AsTask(), done);
    });

    /// <summary>Adds members to a set. Nobody waits for the answer.</summary>
    public void AddToSet(string set, IReadOnlyList<string> members) => Change(request =>
    {
        foreach (var member in members)
            request.SetAdd(Encoding.ASCII.GetBytes(set), Encoding.ASCII.GetBytes(member));
    }, static _ => { });

    /// <summary>Deletes a set, as far as one request does that.</summary>
    public void DeleteSet(string set, Action<WriteResult> done) => Change(request => request.SetDelete(Encoding.ASCII.GetBytes(set)), done);

    /// <summary>Puts a key that expires after so many milliseconds (0: never), or that a session owns (0: none).</summary>
    public void PutWithLife(string key, byte[] value, int ttlMs, UInt128 owner, Action<WriteResult> done) =>
        Change(request => request.Put(Encoding.ASCII.GetBytes(key), value, new PutTerms((ulong)ttlMs, owner, IsNumbered: false)), done);

    /// <summary>Sets anew when a key expires.</summary>
    public void Touch(string key, int ttlMs, Action<WriteResult> done) => Change(request => request.Touch(Encoding.ASCII.GetBytes(key), (ulong)ttlMs), done);

    /// <summary>Opens a session with a lifetime.</summary>
    public void OpenSession(UInt128 session, QuotaOwner owner, ulong lifetimeMs, Action<WriteResult> done) =>
        Change(request => request.OpenSession(session, owner, lifetimeMs), done);

    /// <summary>Keeps a session alive. Gives its lifetime, 0 if it does not exist, or a negative number if nothing is known.</summary>
    public void KeepAlive(UInt128 session, Action<long> done) => node.Events.Deliver(() =>
    {
        if (node.Replica is not { } replica)
            return;
        // As SessionKeeping.KeepAsync, whose continuations would run on the thread pool.
        var (sessions, leftMs) = (new[] { session }, new ulong[1]);
        node.UnlessStopped(() =>
        {
            if (replica.Sessions.Restart(sessions, leftMs, out var forget) is not { } lifetimes)
                done(-1);
            else if (forget is null || run.Bug == InjectedBug.KeptBeforeItsRecord)
                Answer(lifetimes);
            else
                node.Events.Poll(replica.Writes.SubmitAsync(forget).AsTask(), result =>
                {
                    if (result.Outcome == WriteOutcome.Applied)
                        node.UnlessStopped(() => Answer(lifetimes), () => done(-1));
                    else
                        done(-1);
                });
        }, () => done(-1));

        void Answer(SessionLifetimes lifetimes)
        {
            if (replica.Sessions.TryAnswer(lifetimes, sessions, leftMs, isConfirmed: false, out var kept))
                done(kept.IsEnding ? -1 : (long)leftMs[0]);
            else
                node.Events.Poll(replica.Reads.ConfirmAsync(CancellationToken.None), confirmed => node.UnlessStopped(
                    () => done(confirmed is not null && replica.Sessions.TryAnswer(lifetimes, sessions, leftMs, isConfirmed: true, out kept) && !kept.IsEnding
                        ? (long)leftMs[0]
                        : -1), () => done(-1)));
        }
    });

    /// <summary>Opens a session.</summary>
    public void OpenSession(UInt128 session, QuotaOwner owner, Action<WriteResult> done) => Change(request => request.OpenSession(session, owner), done);

    /// <summary>Makes a change of any kind.</summary>
    public void Make(Action<WriteRequest> fill, Action<WriteResult> done) => Change(fill, done);

    /// <summary>Reads keys at one snapshot.</summary>
    public void Get(int[] keys, ReadKind kind, Etag least, Action<ClusterRead?> done) => node.Events.Deliver(() =>
    {
        if (node.Replica is { } replica)
            node.UnlessStopped(() => Open(replica, kind, least, (snapshot, ageUs) => Read(snapshot, keys, ageUs, done), () => done(null)), () => done(null));
    });

    /// <summary>Walks over keys with a cursor at one snapshot, a few at a time. Null if it cannot, or if its process ended meanwhile.</summary>
    public void Scan(ScanRange range, ReadKind kind, Etag least, Action<ClusterScan?> done) => node.Events.Deliver(() =>
    {
        if (node.Replica is { } replica)
            node.UnlessStopped(() => Open(replica, kind, least, (snapshot, _) => Walk(snapshot, range, done), () => done(null)), () => done(null));
    });

    private void Change(Action<WriteRequest> fill, Action<WriteResult> done) => node.Events.Deliver(() =>
    {
        if (node.Replica is null)
            return;
        var request = WriteRequest.Rent();
        fill(request);
        node.Events.Poll(node.Replica.Writes.SubmitAsync(request).AsTask(), done);
    });

    private bool IsFaulty(InjectedBug bug) => run.Bug == bug && run.Chance(FaultyPermille);

    private void Open(ShardReplica replica, ReadKind kind, Etag least, Action<ReadSnapshot, ulong?> read, Action refused)
    {
        switch (kind)
        {
            case ReadKind.Leader or ReadKind.Replica when run.Bug is InjectedBug.LeaseBeforeSnapshot or InjectedBug.LeaseOfAnotherEpoch:
                FaultyReads.OpenByLease(node, replica, run.Bug, run.Random.NextInt64(FaultyReads.HeldUpMaxUs), read, refused);
                break;
            case ReadKind.Session when run.Bug == InjectedBug.SessionReadUnwaited:
            case ReadKind.Replica when run.Bug == InjectedBug.FollowerReadUnasked:
                OpenNow(replica, null, read, refused);
                break;
            case ReadKind.Leader or ReadKind.Replica when TryOpenLinearizable(replica, out var snapshot):
                if (snapshot is { } opened)
                    read(opened, null);
                break;
            case ReadKind.Stale:
                // Taken before the snapshot, which may be newer but not older.
                var ageUs = replica.Reads.AgeUs;
                OpenNow(replica, ageUs, read, refused);
                break;
            case ReadKind.Session:
                if (!replica.Reads.HasApplied(least))
                    _ = replica.Reads.AskLeaderAsync(CancellationToken.None);
                OpenWhenApplied(replica, least, read, refused);
                break;
            case ReadKind.Replica when !replica.IsServing:
                node.Events.Poll(replica.Reads.AskLeaderAsync(CancellationToken.None), committed =>
                {
                    if (committed is { } etag)
                        OpenWhenApplied(replica, etag, read, refused);
                    else
                        refused();
                });
                break;
            default:
                node.Events.Poll(replica.Reads.ConfirmAsync(CancellationToken.None), confirmed =>
                {
                    if (confirmed is not null)
                        OpenNow(replica, null, read, refused);
                    else
                        refused();
                });
                break;
        }
    }

    // As the replica does it, except that sometimes the reader's thread stalls between its snapshot and its look at the lease, while everything else
    // continues: writes, other leaderships, the end of its own process. True without a snapshot means that nobody answers.
    private bool TryOpenLinearizable(ShardReplica replica, out ReadSnapshot? snapshot)
    {
        var process = node.Process;
        var opened = replica.Reads.OpenSnapshot();
        if (!run.Healed && run.Random.Next(StandInOneOf) == 0)
            run.Stand(run.Random.NextInt64(run.Random.Next(2) == 0 ? StandShortUs : StandLongUs));
        // The process is gone with everything it held, and so is the caller's answer.
        var isGone = !node.IsUp || node.Process != process;
        var isCovered = !isGone && IsCovered(replica, opened);
        snapshot = isCovered ? opened : null;
        if (!isCovered && !isGone)
            opened.Dispose();
        return isCovered || isGone;
    }

    private bool IsCovered(ShardReplica replica, in ReadSnapshot snapshot)
    {
        if (run.Bug != InjectedBug.LeaseFromBefore)
            return replica.Reads.IsCovered(snapshot);
        var earlierUs = (node.Clock.GetTimestamp() / (node.Clock.TimestampFrequency / 1_000_000)) - FaultyReads.EarlierUs;
        return replica.IsServing && replica.Reads.Lease.Covers(snapshot.Etag, earlierUs);
    }

    private void OpenWhenApplied(ShardReplica replica, Etag etag, Action<ReadSnapshot, ulong?> read, Action refused) => node.Events.Until(() =>
    {
        if (!replica.Reads.HasApplied(etag))
            return false;
        OpenNow(replica, null, read, refused);
        return true;
    });

    private void OpenNow(ShardReplica replica, ulong? ageUs, Action<ReadSnapshot, ulong?> read, Action refused) =>
        node.UnlessStopped(() => read(replica.Reads.OpenSnapshot(), ageUs), refused);

    private void Read(ReadSnapshot snapshot, int[] keys, ulong? ageUs, Action<ClusterRead?> done)
    {
        using (snapshot)
        {
            var found = new CommittedLog.Version[keys.Length];
            try
            {
                for (var i = 0; i < keys.Length; i++)
                {
                    if (snapshot.TryGet(TreeId.Kv, ClusterData.Key(keys[i]), out var stored))
                        found[i] = ClusterData.Found(stored);
                }
            }
            catch (CorruptStoreException damage) when (node.Disk.IsDamaged)
            {
                node.Lose(damage.Message);
                return;
            }

            done(new ClusterRead(snapshot.Etag, found, run.NowUs, ageUs));
        }
    }

    // It keeps its pages while it pauses between steps. When the process ends, everything that it held is gone.
    private void Walk(ReadSnapshot snapshot, ScanRange range, Action<ClusterScan?> done)
    {
        var entries = new List<(string, CommittedLog.Version)>();
        var cursor = snapshot.Cursor(TreeId.Kv, Encoding.ASCII.GetBytes(range.Lower), Encoding.ASCII.GetBytes(range.Upper));
        Step();

        void Step()
        {
            var more = true;
            try
            {
                for (var left = ScanStepKeys; left > 0 && more; left--)
                {
                    more = entries.Count < range.CountMax && (range.Reverse ? cursor.MovePrevious() : cursor.MoveNext());
                    if (more)
                        entries.Add((Encoding.ASCII.GetString(cursor.Key), ClusterData.Found(cursor.Value)));
                }
            }
            catch (CorruptStoreException damage) when (node.Disk.IsDamaged)
            {
                node.Lose(damage.Message);
                return;
            }

            if (more)
            {
                node.Events.InThisProcess(run.Random.NextInt64(ScanRestUs), () => node.Events.Deliver(Step));
                return;
            }

            cursor.Dispose();
            done(new ClusterScan(snapshot.Etag, entries));
            snapshot.Dispose();
        }
    }
}
