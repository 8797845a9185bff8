using KvCluster.Storage;

namespace KvCluster.Simulation.Cluster;

/// <summary>
/// What callers of whole replicas were answered. Order in real time is checked at once, by the greatest etag answered before a request was sent, and so is
/// that repeated attempts get one answer; what was read is checked at the end against the tree, which by then has the etag of every write that was ever committed.
/// </summary>
internal sealed class ClusterHistory
{
    private readonly List<ClusterWrite> _writes = [];
    private readonly Dictionary<long, Etag> _acknowledged = [];
    private readonly Dictionary<long, Etag> _refused = [];
    private readonly HashSet<long> _notApplied = [];
    private readonly List<(int[] Keys, ClusterRead Read)> _reads = [];
    private readonly List<(long AtUs, Etag Floor)> _floors = [(0, Etag.None)];

    /// <summary>The greatest etag answered so far.</summary>
    public Etag Floor => _floors[^1].Floor;

    public long Writes => _acknowledged.Count;

    public long Reads { get; private set; }

    public long FollowerReads { get; private set; }

    public long Scans { get; private set; }

    public long FailedConditions => _refused.Count;

    /// <summary>Answers that were given again to another attempt.</summary>
    public long Repeats { get; private set; }

    /// <summary>A write is about to be sent for the first time.</summary>
    public ClusterWrite Begin(int[] keys, long? expected, UInt128 session, ulong sequence)
    {
        var write = new ClusterWrite(_writes.Count + 1L, keys, expected, Floor, session, sequence);
        _writes.Add(write);
        return write;
    }

    public void OnWrite(ClusterWrite write, WriteResult result, long nowUs)
    {
        var etag = Etag.FromValue(result.Etag);
        switch (result.Outcome)
        {
            case WriteOutcome.Applied:
                Violation.Unless(etag > write.Floor, Rule.EtagsRise, $"write {write.Id} has etag {etag}, but {write.Floor} was answered before it was sent");
                Violation.Unless(!_notApplied.Contains(write.Id), Rule.AppliedOnce, $"write {write.Id} was answered \"not applied\", and is acknowledged at {etag}");
                Answer(_acknowledged, write, etag);
                Answered(etag, nowUs);
                break;
            case WriteOutcome.ConditionFailed:
                Violation.Unless(etag >= write.Floor, Rule.Linearizable, $"the condition of write {write.Id} failed at {etag}, but {write.Floor} was answered before it was sent");
                Violation.Unless(!_acknowledged.ContainsKey(write.Id), Rule.AppliedOnce, $"write {write.Id} was acknowledged, and its condition failed at {etag}");
                Answer(_refused, write, etag);
                _notApplied.Add(write.Id);
                Answered(etag, nowUs);
                break;
            // Another attempt of an identified one may still be applied.
            case not WriteOutcome.OutcomeUnknown when !write.IsIdentified:
                _notApplied.Add(write.Id);
                break;
        }
    }

    /// <summary>A session was opened: a change like any other.</summary>
    public void OnSession(Etag session, Etag floor, long nowUs)
    {
        Violation.Unless(session > floor, Rule.EtagsRise, $"a session has etag {session}, but {floor} was answered before it was asked for");
        Answered(session, nowUs);
    }

    /// <summary>A read was answered.</summary>
    /// <param name="keys">What was read.</param>
    /// <param name="read">The answer.</param>
    /// <param name="least">The state must have this: for a linearizable read all that was answered before it was sent, in a session what its caller has seen.</param>
    /// <param name="atFollower">Any replica could serve it.</param>
    /// <param name="nowUs">The run's time.</param>
    public void OnRead(int[] keys, ClusterRead read, Etag least, bool atFollower, long nowUs)
    {
        Violation.Unless(read.Etag >= least, Rule.Linearizable, $"a read of keys {string.Join(' ', keys)} saw {read.Etag}, but {least} was answered before it was sent");
        _reads.Add((keys, read));
        if (atFollower)
            FollowerReads++;
        else if (keys.Length > 1)
            Scans++;
        else
            Reads++;
        Answered(read.Etag, nowUs);
    }

    /// <summary>The greatest etag answered until then.</summary>
    public Etag FloorAt(long atUs)
    {
        var index = _floors.Count - 1;
        while (index > 0 && _floors[index].AtUs > atUs)
            index--;
        return _floors[index].Floor;
    }

    /// <summary>Compares all answers with the final state.</summary>
    /// <param name="etagOf">Where a write is in it; none: it was never applied.</param>
    public void Check(Func<long, Etag> etagOf)
    {
        var valuesOf = new Dictionary<int, List<(Etag Etag, long WriteId)>>();
        foreach (var write in _writes)
        {
            var etag = etagOf(write.Id);
            if (_acknowledged.TryGetValue(write.Id, out var acknowledged))
                Violation.Unless(etag == acknowledged, Rule.CommittedStays, $"write {write.Id} was acknowledged at {acknowledged}; now it is at {etag}");
            if (etag == Etag.None)
                continue;
            Violation.Unless(!_notApplied.Contains(write.Id), Rule.AppliedOnce, $"write {write.Id} was answered \"not applied\", and is at {etag}");
            foreach (var key in write.Keys)
            {
                if (!valuesOf.TryGetValue(key, out var values))
                    valuesOf[key] = values = [];
                values.Add((etag, write.Id));
            }
        }

        foreach (var values in valuesOf.Values)
            values.Sort();
        long ValueAt(int key, Etag etag) => valuesOf.TryGetValue(key, out var values) ? values.LastOrDefault(value => value.Etag <= etag).WriteId : 0;
        foreach (var (keys, read) in _reads)
        {
            for (var i = 0; i < keys.Length; i++)
            {
                var committed = ValueAt(keys[i], read.Etag);
                Violation.Unless(committed == read.Values[i], Rule.Linearizable, $"a read of key {keys[i]} at {read.Etag} gave {read.Values[i]}, the committed value is {committed}");
            }
        }

        foreach (var (writeId, etag) in _refused)
        {
            var write = _writes[(int)writeId - 1];
            Violation.Unless(
                ValueAt(write.Keys[0], etag) != write.Expected, Rule.Linearizable, $"the condition that key {write.Keys[0]} is {write.Expected} failed at {etag}, where it holds");
        }
    }

    private void Answer(Dictionary<long, Etag> answers, ClusterWrite write, Etag etag)
    {
        if (answers.TryAdd(write.Id, etag))
            return;
        Repeats++;
        Violation.Unless(answers[write.Id] == etag, Rule.AppliedOnce, $"write {write.Id} was answered at {answers[write.Id]}, and to another attempt at {etag}");
    }

    private void Answered(Etag etag, long nowUs)
    {
        if (etag > Floor)
            _floors.Add((nowUs, etag));
    }
}
