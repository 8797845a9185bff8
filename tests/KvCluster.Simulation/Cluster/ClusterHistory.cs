using KvCluster.Storage.Sessions;

namespace KvCluster.Simulation.Cluster;

/// <summary>
/// The answers to callers of whole replicas. Two things are checked at once: real-time order, by the greatest etag answered before a request was
/// sent, and that repeated attempts get one answer. The results of reads and conditions are compared at the end with the committed records.
/// </summary>
internal sealed class ClusterHistory
{
    private readonly List<ClusterWrite> _writes = [];
    private readonly Dictionary<long, WriteResult> _acknowledged = [];
    private readonly Dictionary<long, WriteResult> _refused = [];
    private readonly HashSet<long> _notApplied = [];
    private readonly List<(int[] Keys, ClusterRead Read)> _reads = [];
    private readonly List<(ScanRange Range, ClusterScan Scan)> _scans = [];
    private readonly List<(long AtUs, Etag Floor)> _floors = [(0, Etag.None)];

    /// <summary>The greatest etag answered so far.</summary>
    public Etag Floor => _floors[^1].Floor;

    public long Writes => _acknowledged.Count;

    public long Reads { get; private set; }

    public long FollowerReads { get; private set; }

    public long Scans { get; private set; }

    /// <summary>Scans that walked over keys with a cursor, page by page.</summary>
    public long Walks => _scans.Count;

    public long FailedConditions => _refused.Count;

    /// <summary>When a leader last answered a caller, in the run's time.</summary>
    public long ServedUs { get; private set; }

    /// <summary>When a caller was last told that its session is open, in the run's time.</summary>
    public long SessionOpenedUs { get; private set; }

    /// <summary>Answers that were repeated for another attempt.</summary>
    public long Repeats { get; private set; }

    /// <summary>A write is about to be sent for the first time.</summary>
    public ClusterWrite Begin(int[] keys, bool deletes, int valueBytes, ClusterCondition? condition, UInt128 session, ulong sequence, ClusterKeys? range = null)
    {
        var write = new ClusterWrite(_writes.Count + 1L, keys, deletes, valueBytes, condition, Floor, session, sequence, range);
        _writes.Add(write);
        return write;
    }

    public void OnWrite(ClusterWrite write, WriteResult result, long nowUs)
    {
        var etag = result.Etag;
        switch (result.Outcome)
        {
            case WriteOutcome.Applied:
                Violation.Unless(etag > write.Floor, Rule.EtagsRise, $"write {write.Id} has etag {etag}, but {write.Floor} was answered before it was sent");
                Violation.Unless(
                    !_notApplied.Contains(write.Id), Rule.AppliedOnce, $"write {write.Id} was answered \"not applied\", and is acknowledged at {etag}");
                Answer(_acknowledged, write, result);
                ServedUs = nowUs;
                Answered(etag, nowUs);
                break;
            case WriteOutcome.ConditionFailed:
                Violation.Unless(etag >= write.Floor, Rule.Linearizable, $"the condition of write {write.Id} failed at {etag}, but {write.Floor} was answered "
                    + $"before it was sent");
                Violation.Unless(
                    !_acknowledged.ContainsKey(write.Id), Rule.AppliedOnce, $"write {write.Id} was acknowledged, and its condition failed at {etag}");
                Answer(_refused, write, result);
                _notApplied.Add(write.Id);
                Answered(etag, nowUs);
                break;
            // Another attempt of an identified write may still be applied.
            case not WriteOutcome.OutcomeUnknown when !write.IsIdentified:
                _notApplied.Add(write.Id);
                break;
        }
    }

    /// <summary>A session was opened, which is a change like any other.</summary>
    public void OnSession(Etag session, Etag floor, long nowUs)
    {
        Violation.Unless(session > floor, Rule.EtagsRise, $"a session has etag {session}, but {floor} was answered before it was asked for");
        SessionOpenedUs = nowUs;
        Answered(session, nowUs);
    }

    /// <summary>A read was answered.</summary>
    /// <param name="keys">The keys read.</param>
    /// <param name="read">The answer.</param>
    /// <param name="least">The state must include this: for a linearizable read everything answered before it was sent, in a session what its caller
    /// has seen.</param>
    /// <param name="atFollower">Whether any replica could serve it.</param>
    /// <param name="nowUs">The run's time.</param>
    public void OnRead(int[] keys, ClusterRead read, Etag least, bool atFollower, long nowUs)
    {
        Violation.Unless(
            read.Etag >= least, Rule.Linearizable, $"a read of keys {string.Join(' ', keys)} saw {read.Etag}, but {least} was answered before it was sent");
        _reads.Add((keys, read));
        if (!atFollower)
            ServedUs = nowUs;
        if (atFollower)
            FollowerReads++;
        else if (keys.Length > 1)
            Scans++;
        else
            Reads++;
        Answered(read.Etag, nowUs);
    }

    /// <summary>A scan was answered completely.</summary>
    /// <inheritdoc cref="OnRead"/>
    public void OnScan(ScanRange range, ClusterScan scan, Etag least, long nowUs)
    {
        Violation.Unless(scan.Etag >= least, Rule.Linearizable, $"a scan from {range.Lower} saw {scan.Etag}, but {least} was answered before it was sent");
        _scans.Add((range, scan));
        Answered(scan.Etag, nowUs);
    }

    /// <summary>The greatest etag answered until then.</summary>
    public Etag FloorAt(long atUs)
    {
        var index = _floors.Count - 1;
        while (index > 0 && _floors[index].AtUs > atUs)
            index--;
        return _floors[index].Floor;
    }

    /// <summary>Compares all answers with the committed records.</summary>
    public void Check(CommittedLog log)
    {
        foreach (var write in _writes)
            Check(log, write);
        foreach (var (keys, read) in _reads)
        {
            for (var i = 0; i < keys.Length; i++)
                CheckSame(log.At(ClusterData.NameOf(keys[i]), read.Etag), read.Found[i], ClusterData.NameOf(keys[i]), read.Etag);
        }

        foreach (var (range, scan) in _scans)
            Check(log, range, scan);
        foreach (var (writeId, result) in _refused)
        {
            var (condition, etag) = (_writes[(int)writeId - 1].Condition!, result.Etag);
            Violation.Unless(!condition.Holds(log.At(ClusterData.NameOf(condition.Key), etag)), Rule.Linearizable, $"the condition of write {writeId}, "
                + $"{condition}, failed at {etag}, where it holds");
        }
    }

    private void Check(CommittedLog log, ClusterWrite write)
    {
        var at = log.AppliedAt(write.Id);
        Violation.Unless(at.Count <= 1, Rule.AppliedOnce, $"write {write.Id} is applied {at.Count} times, at {string.Join(", ", at)}");
        var etag = at.Count == 0 ? Etag.None : at[0];
        var isAcknowledged = _acknowledged.TryGetValue(write.Id, out var result);
        if (isAcknowledged)
            Violation.Unless(etag == result.Etag, Rule.CommittedStays, $"write {write.Id} was acknowledged at {result.Etag}; now it is at {etag}");
        if (at.Count == 0)
            return;
        Violation.Unless(!_notApplied.Contains(write.Id), Rule.AppliedOnce, $"write {write.Id} was answered \"not applied\", and is at {etag}");
        var first = write.FirstOf(etag);
        if (write.Condition is { } condition)
            Violation.Unless(condition.Holds(log.Before(ClusterData.NameOf(condition.Key), first)), Rule.Linearizable, $"write {write.Id} is applied at "
                + $"{first}, and just before {condition} does not hold");
        var existed = write.Deletes ? write.Keys.Count(key => log.Before(ClusterData.NameOf(key), first).Exists) : 0;
        if (isAcknowledged)
            Violation.Unless(
                existed == result.Deleted, Rule.Linearizable, $"write {write.Id} deletes {existed} keys at {first}, and {result.Deleted} was answered");
        for (var i = 0; i < write.Keys.Length; i++)
        {
            var (key, changed) = (ClusterData.NameOf(write.Keys[i]), write.At(first, i));
            var done = log.At(key, changed);
            // A range changes only keys that are there.
            var isChanged = write.Range is null || log.Before(key, first).Exists;
            Violation.Unless((done.Etag == changed || !isChanged) && done.Exists != write.Deletes, Rule.CommittedStays, $"write {write.Id} at {etag} lacks its "
                + $"change of {key}");
        }
    }

    private static void Check(CommittedLog log, ScanRange range, ClusterScan scan)
    {
        var expected = log.Keys.Where(key => string.CompareOrdinal(key, range.Lower) >= 0 && string.CompareOrdinal(key, range.Upper) < 0);
        var index = 0;
        foreach (var key in range.Reverse ? expected.Reverse() : expected)
        {
            var committed = log.At(key, scan.Etag);
            if (!committed.Exists)
                continue;
            if (index == range.CountMax)
                return;
            Violation.Unless(index < scan.Entries.Count && scan.Entries[index].Key == key, Rule.Linearizable, $"a scan at {scan.Etag} has "
                + $"{(index < scan.Entries.Count ? scan.Entries[index].Key : "its end")} where {key} was committed");
            CheckSame(committed, scan.Entries[index++].Found, key, scan.Etag);
        }

        Violation.Unless(index == scan.Entries.Count, Rule.Linearizable, $"a scan at {scan.Etag} goes on with "
            + $"{(index < scan.Entries.Count ? scan.Entries[index].Key : "")} where nothing was committed");
    }

    private static void CheckSame(in CommittedLog.Version committed, in CommittedLog.Version found, string key, Etag etag)
    {
        var same = committed.Exists == found.Exists && (!found.Exists || (found.Etag == committed.Etag && found.Value.AsSpan().SequenceEqual(committed.Value)));
        Violation.Unless(same, Rule.Linearizable, $"a read of {key} at {etag} gave write {ClusterData.WriteOf(found.Value)} of {found.Etag}, committed is "
            + $"{ClusterData.WriteOf(committed.Value)} of {committed.Etag}");
    }

    private void Answer(Dictionary<long, WriteResult> answers, ClusterWrite write, WriteResult result)
    {
        if (answers.TryAdd(write.Id, result))
            return;
        Repeats++;
        Violation.Unless(answers[write.Id] == result, Rule.AppliedOnce, $"write {write.Id} was answered {answers[write.Id]}, and to another attempt {result}");
    }

    private void Answered(Etag etag, long nowUs)
    {
        if (etag > Floor)
            _floors.Add((nowUs, etag));
    }
}
