using KvCluster.Replication.Log;

namespace KvCluster.Simulation.Protocol;

/// <summary>
/// Checks a run while it proceeds. The committed records of all replicas form one sequence, the reference. Every answered operation has a place in it
/// that respects real time, so the history is that of a single copy.
/// </summary>
internal sealed class HistoryChecker
{
    private readonly List<SimulatedRecord> _committed = [];
    private readonly Dictionary<Etag, int> _indexOf = [];
    private readonly Dictionary<int, List<(Etag Etag, long WriteId)>> _valuesOf = [];
    private readonly Dictionary<long, Etag> _appliedAt = [];
    private readonly HashSet<long> _notApplied = [];
    private readonly Dictionary<ulong, (ReplicaId Replica, ulong Incarnation)> _servedBy = [];

    /// <summary>Everything answered so far is at or before this.</summary>
    public Etag Floor { get; private set; }

    public Etag Last => _committed.Count == 0 ? Etag.None : _committed[^1].Header.Etag;

    public int AnsweredWrites { get; private set; }

    public int AnsweredReads { get; private set; }

    public int AnsweredScans { get; private set; }

    public int FailedConditions { get; private set; }

    public int Epochs => _servedBy.Count;

    public void OnServing(ulong epoch, ReplicaId replica, ulong incarnation)
    {
        Violation.Unless(!_servedBy.TryGetValue(epoch, out var other) || other == (replica, incarnation), Rule.OneLeaderAnEpoch, $"two leaders serve epoch "
            + $"{epoch}: {other} and {(replica, incarnation)}");
        _servedBy[epoch] = (replica, incarnation);
    }

    /// <summary>A replica applies this record as committed.</summary>
    public void OnCommitted(ReplicaId replica, SimulatedRecord record)
    {
        var header = record.Header;
        if (header.Etag <= Last)
        {
            Violation.Unless(
                _indexOf.TryGetValue(header.Etag, out var index) && _committed[index].Header.Checksum == header.Checksum,
                Rule.CommittedStays,
                $"replica {replica} commits {header.Name}, which is not in the committed sequence up to {Last}");
            return;
        }

        Violation.Unless(header.Previous == Last, Rule.CommittedStays, $"replica {replica} commits {header.Name} behind {header.PreviousName}, but {Last} is "
            + $"the last one committed");
        _indexOf[header.Etag] = _committed.Count;
        _committed.Add(record);
        foreach (var writeId in record.Writes.Select(write => write.WriteId).Distinct())
        {
            Violation.Unless(_appliedAt.TryAdd(writeId, header.Etag), Rule.AppliedOnce, $"write {writeId} is applied twice");
            Violation.Unless(
                !_notApplied.Contains(writeId), Rule.AppliedOnce, $"write {writeId} was answered \"not applied\" and is committed at {header.Name}");
        }

        foreach (var write in record.Writes)
        {
            if (!_valuesOf.TryGetValue(write.Key, out var values))
                _valuesOf[write.Key] = values = [];
            values.Add((header.Etag, write.WriteId));
        }
    }

    /// <summary>A write was acknowledged at this etag.</summary>
    public void OnWritten(long writeId, Etag etag, Etag floor)
    {
        Violation.Unless(_appliedAt.TryGetValue(writeId, out var applied) && applied == etag, Rule.CommittedStays, $"write {writeId} is acknowledged at "
            + $"{etag}, but is not committed there");
        Violation.Unless(etag > floor, Rule.EtagsRise, $"write {writeId} has etag {etag}, but {floor} was answered before it was sent");
        Floor = etag > Floor ? etag : Floor;
        AnsweredWrites++;
    }

    /// <summary>A read, a scan or a failed condition was answered from the state at this etag.</summary>
    public void OnRead(int[] keys, long[] values, Etag etag, Etag floor, bool failedCondition)
    {
        Violation.Unless(etag >= floor, Rule.Linearizable, $"a read of keys {string.Join(' ', keys)} saw {etag}, but {floor} was answered before it was sent");
        Violation.Unless(etag == Etag.None || _indexOf.ContainsKey(etag), Rule.Linearizable, $"a read saw {etag}, which is not committed");
        for (var i = 0; i < keys.Length; i++)
        {
            var committed = ValueAt(keys[i], etag);
            Violation.Unless(
                committed == values[i], Rule.Linearizable, $"a read of key {keys[i]} at {etag} gave {values[i]}, the committed value is {committed}");
        }

        Floor = etag > Floor ? etag : Floor;
        if (failedCondition)
            FailedConditions++;
        else if (keys.Length > 1)
            AnsweredScans++;
        else
            AnsweredReads++;
    }

    /// <summary>A write was answered "certainly not applied".</summary>
    public void OnNotApplied(long writeId)
    {
        Violation.Unless(!_appliedAt.ContainsKey(writeId), Rule.AppliedOnce, $"write {writeId} is answered \"not applied\", but is committed");
        _notApplied.Add(writeId);
    }

    private long ValueAt(int key, Etag etag) =>
        _valuesOf.TryGetValue(key, out var values) ? values.LastOrDefault(value => value.Etag <= etag).WriteId : 0;
}
