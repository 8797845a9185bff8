namespace KvCluster.Simulation.Protocol;

/// <summary>
/// Judges a run while it goes on. The committed records of all replicas are one sequence; it is the witness: every answered operation has a place
/// in it that respects real time, so the history is that of one copy.
/// </summary>
internal sealed class HistoryChecker
{
    private readonly List<SimulatedRecord> _committed = [];
    private readonly Dictionary<Etag, int> _indexOf = [];
    private readonly Dictionary<int, List<(Etag Etag, long WriteId)>> _valuesOf = [];
    private readonly Dictionary<long, Etag> _appliedAt = [];
    private readonly HashSet<long> _notApplied = [];
    private readonly Dictionary<ulong, (ulong Replica, ulong Incarnation)> _servedBy = [];

    /// <summary>Everything answered so far is at or before this.</summary>
    public Etag Floor { get; private set; }

    public Etag Last => _committed.Count == 0 ? Etag.None : _committed[^1].Header.Etag;

    public int AnsweredWrites { get; private set; }

    public int AnsweredReads { get; private set; }

    public int Epochs => _servedBy.Count;

    public void OnServing(ulong epoch, ulong replica, ulong incarnation)
    {
        Violation.Unless(!_servedBy.TryGetValue(epoch, out var other) || other == (replica, incarnation), $"two leaders serve epoch {epoch}: {other} and {(replica, incarnation)}");
        _servedBy[epoch] = (replica, incarnation);
    }

    /// <summary>A replica applies this record as committed.</summary>
    public void OnCommitted(ulong replica, SimulatedRecord record)
    {
        var header = record.Header;
        if (header.Etag <= Last)
        {
            Violation.Unless(
                _indexOf.TryGetValue(header.Etag, out var index) && _committed[index].Header.Checksum == header.Checksum,
                $"replica {replica} commits {header.Name}, which is not in the committed sequence up to {Last}");
            return;
        }

        Violation.Unless(header.Previous == Last, $"replica {replica} commits {header.Name} behind {header.PreviousName}, but {Last} is the last one committed");
        _indexOf[header.Etag] = _committed.Count;
        _committed.Add(record);
        foreach (var write in record.Writes)
        {
            Violation.Unless(_appliedAt.TryAdd(write.WriteId, header.Etag), $"write {write.WriteId} is applied twice");
            Violation.Unless(!_notApplied.Contains(write.WriteId), $"write {write.WriteId} was answered \"not applied\" and is committed at {header.Name}");
            if (!_valuesOf.TryGetValue(write.Key, out var values))
                _valuesOf[write.Key] = values = [];
            values.Add((header.Etag, write.WriteId));
        }
    }

    /// <summary>A write was acknowledged at this etag.</summary>
    public void OnWritten(long writeId, Etag etag, Etag floor)
    {
        Violation.Unless(_appliedAt.TryGetValue(writeId, out var applied) && applied == etag, $"write {writeId} is acknowledged at {etag}, but is not committed there");
        Violation.Unless(etag > floor, $"write {writeId} has etag {etag}, but {floor} was answered before it was sent");
        Floor = etag > Floor ? etag : Floor;
        AnsweredWrites++;
    }

    /// <summary>A read, or a failed condition, was answered from the state at this etag.</summary>
    public void OnRead(int key, long writeId, Etag etag, Etag floor)
    {
        Violation.Unless(etag >= floor, $"a read of key {key} saw {etag}, but {floor} was answered before it was sent");
        Violation.Unless(etag == Etag.None || _indexOf.ContainsKey(etag), $"a read saw {etag}, which is not committed");
        Violation.Unless(ValueAt(key, etag) == writeId, $"a read of key {key} at {etag} gave {writeId}, the committed value is {ValueAt(key, etag)}");
        Floor = etag > Floor ? etag : Floor;
        AnsweredReads++;
    }

    /// <summary>A write was answered "certainly not applied".</summary>
    public void OnNotApplied(long writeId)
    {
        Violation.Unless(!_appliedAt.ContainsKey(writeId), $"write {writeId} is answered \"not applied\", but is committed");
        _notApplied.Add(writeId);
    }

    private long ValueAt(int key, Etag etag) =>
        _valuesOf.TryGetValue(key, out var values) ? values.LastOrDefault(value => value.Etag <= etag).WriteId : 0;
}
