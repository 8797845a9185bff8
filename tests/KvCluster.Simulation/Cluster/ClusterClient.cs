using KvCluster.Storage.Encoding;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;

namespace KvCluster.Simulation.Cluster;

/// <summary>
/// One caller of whole replicas with one operation at a time: reads of every kind, scans, puts of one or several keys, some of them conditional. Most
/// writes are identified in a session and repeated, at any replica, until their outcome is known.
/// </summary>
/// <param name="run">The run.</param>
/// <param name="history">Records every answer.</param>
/// <param name="first">The node that it calls first.</param>
/// <param name="hardlyWrites">It mostly reads, or makes writes whose condition cannot hold, and so stays with a leader that was cut off.</param>
internal sealed class ClusterClient(ClusterRun run, ClusterHistory history, NodeId first, bool hardlyWrites)
{
    private const long TimeoutUs = 120_000;
    private const int WideKeysMax = 120;
    private const long LargeRestUs = 40_000;

    // A value longer than a quarter of a page gets pages of its own.
    private const int WideValueBytesMax = 20_000;
    private const int ScanKeysMax = 40;
    private const int RangeInOneOf = 20;

    private const int SessionsLeftInOneOf = 8;

    // Idle sessions are searched once a second of shard time, which runs at half the pace while it is ahead. The next search ends those that were too
    // young for the last one.
    private const long NoRoomMaxUs = 5_000_000;

    // No write has this id.
    private static readonly byte[] _impossible = ClusterData.Value(-1);

    private readonly CommittedLog.Version[] _found = new CommittedLog.Version[run.Conditions.Keys];
    private NodeId _node = first;
    private long _operation;
    private Etag _seen;
    private UInt128 _session;
    private ulong _sequence;
    private ClusterWrite? _open;
    private long? _noRoomSinceUs;

    /// <summary>Every identified write has an answer.</summary>
    public bool IsSettled => _open is null;

    /// <summary>Its state, for the end of a transcript.</summary>
    public string State => _open is null ? "settled" : $"write {_open.Id}, sequence {_open.Sequence} of session {_open.Session}, is open";

    public void Start() => run.Time.After(run.Random.NextInt64(10_000), Next);

    private void Next()
    {
        var keys = run.Random.Next(4) == 0 ? [0, 1, 2] : new[] { run.Random.Next(run.Conditions.Keys) };
        if (!run.Healed && hardlyWrites && (run.Conditions.PinnedCallers || run.Random.Next(8) != 0))
            AskLeader(keys);
        else if (run.Random.Next(12) == 0)
            Scan(DrawKind(), DrawRange());
        else if (run.Healed || run.Random.Next(3) == 0)
            Read(DrawKind(), keys);
        else if (run.Random.Next(4) == 0)
            Attempt(DrawWrite(keys, 0, 0));
        else if (_session == 0 || (run.Conditions.LeavesSessions && run.Random.Next(SessionsLeftInOneOf) == 0))
            OpenSession();
        else
            Attempt(_open = DrawWrite(keys, _session, ++_sequence));
    }

    private ReadKind DrawKind() => (ReadKind)run.Random.Next(Enum.GetValues<ReadKind>().Length);

    private ClusterWrite DrawWrite(int[] keys, UInt128 session, ulong sequence) => run.Random.Next(RangeInOneOf) == 0
        ? DrawRangeDelete(keys, session, sequence)
        : run.Conditions.IsLarge ? DrawLargeWrite(session, sequence) : history.Begin(
        keys, deletes: run.Random.Next(6) == 0,
        run.Random.Next(12) == 0 ? run.Random.Next(sizeof(long), WideValueBytesMax) : sizeof(long), DrawCondition(keys[0]), session, sequence);

    private ClusterWrite DrawRangeDelete(int[] keys, UInt128 session, ulong sequence)
    {
        string[] ends = [.. new[] { keys[0], run.Random.Next(run.Conditions.Keys) }.Select(ClusterData.NameOf).Order(StringComparer.Ordinal)];
        var range = new ClusterKeys(ends[0], ends[1]);
        return history.Begin(range.Of(run.Conditions.Keys), deletes: true, 0, DrawCondition(keys[0]), session, sequence, range);
    }

    private ClusterWrite DrawLargeWrite(UInt128 session, ulong sequence)
    {
        int[] keys = [.. Enumerable.Range(0, run.Random.Next(1, WideKeysMax)).Select(_ => run.Random.Next(run.Conditions.Keys)).Distinct()];
        return history.Begin(keys, deletes: run.Random.Next(12) == 0, run.Random.Next(500, 8_000), DrawCondition(keys[0]), session, sequence);
    }

    // The keys that all callers write, or some of the hundreds of keys that belong to single writes.
    private ScanRange DrawRange()
    {
        var from = run.Random.Next(3) == 0 ? 0 : run.Random.NextInt64(history.Writes + 1);
        return new ScanRange(from == 0 ? "key" : $"write{from:D8}", "x", Reverse: run.Random.Next(2) == 0, run.Random.Next(1, ScanKeysMax));
    }

    private void AskLeader(int[] keys)
    {
        if (run.Random.Next(2) == 0)
            Read(ReadKind.Leader, keys);
        else
            Attempt(history.Begin(keys, deletes: false, sizeof(long), new ClusterCondition(keys[0], ConditionKind.ValueEquals, Etag.None, _impossible), 0, 0));
    }

    // Mostly a condition that holds if nobody has changed the key since this caller saw it.
    private ClusterCondition? DrawCondition(int key)
    {
        if (run.Random.Next(3) != 0)
            return null;
        var found = _found[key];
        return run.Random.Next(8) switch
        {
            0 => new ClusterCondition(key, ConditionKind.Exists, Etag.None, []),
            1 => new ClusterCondition(key, ConditionKind.Absent, Etag.None, []),
            < 5 => new ClusterCondition(key, ConditionKind.EtagEquals, found.Exists ? found.Etag : Etag.None, []),
            _ when !found.Exists => new ClusterCondition(key, ConditionKind.Absent, Etag.None, []),
            _ => new ClusterCondition(key, ConditionKind.ValueEquals, Etag.None, found.Value!),
        };
    }

    // Draws whether a follower may serve it as well as the leader, what it must show at least, and which node is asked.
    private (bool Anywhere, Etag Least, NodeId Node) DrawTarget(ReadKind kind)
    {
        var anywhere = kind is ReadKind.Replica or ReadKind.Session or ReadKind.Stale;
        var least = kind switch { ReadKind.Stale => Etag.None, ReadKind.Session => _seen, _ => history.Floor };
        return (anywhere, least, anywhere && !run.Conditions.PinnedCallers ? new((uint)run.Random.Next(run.Nodes.Count) + 1) : _node);
    }

    private void Read(ReadKind kind, int[] keys)
    {
        var operation = Begin(Elsewhere);
        var (anywhere, least, of) = DrawTarget(kind);
        run.Network.Call(of, node => node.Requests.Get(keys, kind, least, read => run.Network.Reply(() =>
        {
            if (read is null)
            {
                Leave(operation);
                return;
            }

            run.Transcript.Answer(run.NowUs, $"{kind} keys {string.Join(' ', keys)} are {read.Shown}", read.Etag);
            history.OnRead(keys, read, least, anywhere, run.NowUs);
            CheckAge(read);
            if (operation != _operation)
                return;
            See(read.Etag);
            for (var i = 0; i < keys.Length; i++)
                _found[keys[i]] = read.Found[i];
            Rest();
        })));
    }

    private void Scan(ReadKind kind, ScanRange range)
    {
        var operation = Begin(Elsewhere);
        var (_, least, of) = DrawTarget(kind);
        run.Network.Call(of, node => node.Requests.Scan(range, kind, least, scan => run.Network.Reply(() =>
        {
            if (scan is null)
            {
                Leave(operation);
                return;
            }

            run.Transcript.Answer(run.NowUs, $"{kind} scan from {range.Lower} has {scan.Entries.Count} keys", scan.Etag);
            history.OnScan(range, scan, least, run.NowUs);
            if (operation != _operation)
                return;
            See(scan.Etag);
            Rest();
        })));
    }

    // A stale answer contains everything that was acknowledged longer ago than its age.
    private void CheckAge(ClusterRead read)
    {
        if (read.AgeUs is not { } ageUs || run.Conditions.StaleSlackUs == 0)
            return;
        var since = read.OpenedUs - ((long)ageUs * 1_000 / (1_000 - run.Conditions.DriftPermille)) - run.Conditions.StaleSlackUs;
        var then = history.FloorAt(since);
        Violation.Unless(
            read.Etag >= then, Rule.Linearizable, $"a stale read says that it is {ageUs} us old and saw {read.Etag}, but {then} was answered before that");
    }

    private void OpenSession()
    {
        var operation = Begin(Elsewhere);
        var floor = history.Floor;
        var session = run.DrawSession();
        run.Network.Call(_node, node => node.Requests.OpenSession(
            session, new QuotaOwner(run.Conditions.LeavesSessions ? 1 : _node.Value, 1), result => run.Network.Reply(() =>
            {
                run.Transcript.Answer(run.NowUs, $"session {result.Outcome}", result.Etag);
                if (result.Outcome == WriteOutcome.Applied)
                    history.OnSession(result.Etag, floor, run.NowUs);
                if (operation != _operation)
                    return;
                CheckRoom(result.Outcome);
                if (result.Outcome != WriteOutcome.Applied)
                {
                    Elsewhere();
                    return;
                }

                (_session, _sequence) = (session, 0);
                See(result.Etag);
                Rest();
            })));
    }

    // If there is no place for another session, idle ones end soon, whatever any wall clock says.
    private void CheckRoom(WriteOutcome outcome)
    {
        _noRoomSinceUs = outcome == WriteOutcome.SessionsFull ? _noRoomSinceUs ?? run.NowUs : null;
        if (_noRoomSinceUs is not { } sinceUs)
            return;
        run.Tally.Count(ClusterFault.NoRoomForSession);
        // A session that another caller has opened took the place that became free.
        var forUs = run.NowUs - Math.Max(sinceUs, history.SessionOpenedUs);
        Violation.Unless(forUs <= NoRoomMaxUs, Rule.Available, $"no session can be opened for {forUs / 1_000} ms");
    }

    // One write at a time, so the lowest open sequence number is its own.
    private void Attempt(ClusterWrite write)
    {
        var operation = Begin(() => GoOn(write));
        run.Network.Call(_node, node => node.Requests.Put(write, result => run.Network.Reply(() =>
        {
            run.Transcript.Answer(run.NowUs, $"write {write.Id} {result.Outcome}", result.Etag);
            history.OnWrite(write, result, run.NowUs);
            if (operation == _operation)
                OnWritten(write, result);
        })));
    }

    private void OnWritten(ClusterWrite write, WriteResult result)
    {
        Violation.Unless(
            result.Outcome != WriteOutcome.SequenceClosed, Rule.AppliedOnce, $"the result of write {write.Id} was dropped while its caller waits for it");
        switch (result.Outcome)
        {
            case WriteOutcome.Applied or WriteOutcome.ConditionFailed:
                See(result.Etag);
                if (result.Outcome == WriteOutcome.Applied)
                    Remember(write, write.FirstOf(result.Etag));
                _open = null;
                Rest();
                break;
            case WriteOutcome.SessionExpired:
                Violation.Unless(run.Conditions.LeavesSessions, Rule.AppliedOnce, $"session {write.Session} ended while write {write.Id} is open");
                (_session, _open) = (0, null);
                Rest();
                break;
            default:
                GoOn(write);
                break;
        }
    }

    private void Remember(ClusterWrite write, Etag first)
    {
        for (var i = 0; i < write.Keys.Length; i++)
            _found[write.Keys[i]] = new CommittedLog.Version(write.At(first, i), write.Deletes ? null : write.Value);
    }

    // The outcome of an identified write is found out, however long that takes. Without an identity it stays unknown.
    private void GoOn(ClusterWrite write)
    {
        MoveOn();
        run.Time.After(run.Random.NextInt64(5_000, 40_000), write.IsIdentified ? () => Attempt(write) : Next);
    }

    private long Begin(Action timedOut)
    {
        var operation = ++_operation;
        run.Time.After(TimeoutUs, () =>
        {
            if (operation == _operation)
                timedOut();
        });
        return operation;
    }

    private void Leave(long operation)
    {
        if (operation == _operation)
            Elsewhere();
    }

    private void Elsewhere()
    {
        MoveOn();
        run.Time.After(run.Random.NextInt64(5_000, 40_000), Next);
    }

    private void MoveOn()
    {
        _operation++;
        if (run.Conditions.PinnedCallers && !run.Healed)
            return;
        _node = run.Random.Next(3) == 0 ? new((uint)run.Random.Next(run.Nodes.Count) + 1) : run.LeaderHint;
    }

    private void Rest()
    {
        _operation++;
        run.Time.After(run.Random.NextInt64(200, run.Healed ? 60_000 : run.Conditions.IsLarge ? LargeRestUs : 8_000), Next);
    }

    private void See(Etag etag) => _seen = etag > _seen ? etag : _seen;
}
