using KvCluster.Storage;

namespace KvCluster.Simulation.Cluster;

/// <summary>
/// What callers of whole replicas were answered. Order in real time is checked at once, by the greatest etag answered before a request was sent; what was read is
/// checked at the end against the tree, which by then has the etag of every write that was ever committed.
/// </summary>
internal sealed class ClusterHistory
{
    private readonly Dictionary<long, int[]> _keysOf = [];
    private readonly Dictionary<long, Etag> _acknowledged = [];
    private readonly HashSet<long> _notApplied = [];
    private readonly List<(int[] Keys, long[] Values, Etag Etag)> _reads = [];
    private readonly List<(int Key, long NotValue, Etag Etag)> _failedConditions = [];

    /// <summary>The greatest etag answered so far.</summary>
    public Etag Floor { get; private set; }

    public long Writes => _acknowledged.Count;

    public long Reads { get; private set; }

    public long Scans { get; private set; }

    public long FailedConditions => _failedConditions.Count;

    /// <summary>A write is sent; gives its id, which is the value that it puts.</summary>
    public long Begin(int[] keys)
    {
        var writeId = _keysOf.Count + 1L;
        _keysOf[writeId] = keys;
        return writeId;
    }

    public void OnWrite(long writeId, long? expected, WriteResult result, Etag floor)
    {
        var etag = Etag.FromValue(result.Etag);
        switch (result.Outcome)
        {
            case WriteOutcome.Applied:
                Violation.Unless(etag > floor, Rule.EtagsRise, $"write {writeId} has etag {etag}, but {floor} was answered before it was sent");
                _acknowledged[writeId] = etag;
                Answered(etag);
                break;
            case WriteOutcome.ConditionFailed:
                Violation.Unless(etag >= floor, Rule.Linearizable, $"the condition of write {writeId} failed at {etag}, but {floor} was answered before it was sent");
                _failedConditions.Add((_keysOf[writeId][0], expected!.Value, etag));
                _notApplied.Add(writeId);
                Answered(etag);
                break;
            case not WriteOutcome.OutcomeUnknown:
                _notApplied.Add(writeId);
                break;
        }
    }

    public void OnRead(int[] keys, long[] values, Etag etag, Etag floor)
    {
        Violation.Unless(etag >= floor, Rule.Linearizable, $"a read of keys {string.Join(' ', keys)} saw {etag}, but {floor} was answered before it was sent");
        _reads.Add((keys, values, etag));
        if (keys.Length > 1)
            Scans++;
        else
            Reads++;
        Answered(etag);
    }

    /// <summary>Compares all answers with the final state.</summary>
    /// <param name="etagOf">Where a write is in it; none: it was never applied.</param>
    public void Check(Func<long, Etag> etagOf)
    {
        var valuesOf = new Dictionary<int, List<(Etag Etag, long WriteId)>>();
        foreach (var (writeId, keys) in _keysOf)
        {
            var etag = etagOf(writeId);
            if (_acknowledged.TryGetValue(writeId, out var acknowledged))
                Violation.Unless(etag == acknowledged, Rule.CommittedStays, $"write {writeId} was acknowledged at {acknowledged}; now it is at {etag}");
            if (etag == Etag.None)
                continue;
            Violation.Unless(!_notApplied.Contains(writeId), Rule.AppliedOnce, $"write {writeId} was answered \"not applied\", and is at {etag}");
            foreach (var key in keys)
            {
                if (!valuesOf.TryGetValue(key, out var values))
                    valuesOf[key] = values = [];
                values.Add((etag, writeId));
            }
        }

        foreach (var values in valuesOf.Values)
            values.Sort();
        long ValueAt(int key, Etag etag) => valuesOf.TryGetValue(key, out var values) ? values.LastOrDefault(value => value.Etag <= etag).WriteId : 0;
        foreach (var (keys, values, etag) in _reads)
        {
            for (var i = 0; i < keys.Length; i++)
            {
                var committed = ValueAt(keys[i], etag);
                Violation.Unless(committed == values[i], Rule.Linearizable, $"a read of key {keys[i]} at {etag} gave {values[i]}, the committed value is {committed}");
            }
        }

        foreach (var (key, notValue, etag) in _failedConditions)
            Violation.Unless(ValueAt(key, etag) != notValue, Rule.Linearizable, $"the condition that key {key} is {notValue} failed at {etag}, where it holds");
    }

    private void Answered(Etag etag) => Floor = etag > Floor ? etag : Floor;
}
