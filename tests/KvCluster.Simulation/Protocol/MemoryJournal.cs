using System.Diagnostics.CodeAnalysis;
using Google.Protobuf;
using KvCluster.Replication.Log;

namespace KvCluster.Simulation.Protocol;

/// <summary>
/// A journal in memory with the failures of one on disk. Writes complete one by one and out of order. A crash keeps or drops incomplete ones. A cut
/// whose header was not synced may be undone. Old records are dropped after a checkpoint.
/// </summary>
internal sealed class MemoryJournal(Random random) : IJournalView
{
    private readonly List<Entry> _entries = [];
    private List<Entry> _cutTail = [];
    private LogPosition _base;
    private bool _cutting;

    public RecordRef Last => _entries.Count == 0 ? BaseRecord : _entries[^1].Record.Header;

    public RecordRef Durable
    {
        get
        {
            var completed = _entries.TakeWhile(entry => entry.Completed).Count();
            return completed == 0 ? BaseRecord : _entries[completed - 1].Record.Header;
        }
    }

    public long ShardTimeUs => 0;

    public LogPosition Base => _base;

    /// <summary>The number of writes in progress.</summary>
    public int Writing => _entries.Count(entry => !entry.Completed);

    private RecordRef BaseRecord => new(_base.Etag, Etag.None, _base.Checksum, 0, 0, RecordFlags.None);

    public bool TryFind(Etag etag, out RecordRef record) => TryFindAtOrBefore(etag, out record) && record.Etag == etag;

    public bool TryFindAtOrBefore(Etag etag, out RecordRef record)
    {
        var count = CountUpTo(etag);
        record = count > 0 ? _entries[count - 1].Record.Header : BaseRecord;
        return count > 0 || etag >= _base.Etag;
    }

    public bool TryVerify(ByteString body, [NotNullWhen(true)] out IVerifiedBody? verified)
    {
        verified = SimulatedRecord.TryParse(body.Span, out var parsed) ? parsed : null;
        return verified is not null;
    }

    /// <summary>The records after <paramref name="after"/>, in order.</summary>
    public IEnumerable<SimulatedRecord> Behind(Etag after) => _entries.Skip(CountUpTo(after)).Select(entry => entry.Record);

    /// <summary>Appends a record and returns the action that completes the write.</summary>
    public Action Append(SimulatedRecord record)
    {
        Violation.Unless(!_cutting, Rule.Contract, $"{record.Header.Name} is appended during a cut");
        Violation.Unless(record.Header.PreviousName == Last.Name, Rule.Contract, $"{record.Header.Name} does not chain onto {Last.Name}");
        var entry = new Entry(record);
        _entries.Add(entry);
        return () => entry.Completed = true;
    }

    public void Truncate(LogPosition keep)
    {
        Violation.Unless(TryFind(keep.Etag, out var kept) && kept.Name == keep, Rule.Contract, $"a cut keeps {keep}, which the journal does not have");
        var count = CountUpTo(keep.Etag);
        _cutTail = _entries.Skip(count).ToList();
        _entries.RemoveRange(count, _entries.Count - count);
        _cutting = true;
    }

    public void FinishCut()
    {
        _cutTail = [];
        _cutting = false;
    }

    /// <summary>Drops the records up to a checkpoint. The journal then begins after it.</summary>
    public void Trim(LogPosition covers)
    {
        _entries.RemoveRange(0, CountUpTo(covers.Etag));
        _base = covers;
    }

    /// <summary>A snapshot replaces everything.</summary>
    public void Replace(LogPosition covers)
    {
        _entries.Clear();
        FinishCut();
        _base = covers;
    }

    /// <summary>Drops records at the end that the disk had kept, back to before <paramref name="shown"/>. False if there are none.</summary>
    public bool TryLoseTail(Etag shown)
    {
        var before = _entries.TakeWhile(entry => entry.Record.Header.Etag < shown).Count();
        if (before == _entries.Count || _base.Etag >= shown)
            return false;
        var kept = before - random.Next(Math.Min(before, 5) + 1);
        _entries.RemoveRange(kept, _entries.Count - kept);
        return true;
    }

    /// <summary>The journal as recovery finds it after a power loss.</summary>
    public void Crash()
    {
        if (_cutting && random.Next(2) == 0)
            _entries.AddRange(_cutTail);
        FinishCut();
        foreach (var entry in _entries)
            entry.Completed |= random.Next(2) == 0;
        var kept = _entries.TakeWhile(entry => entry.Completed).Count();
        _entries.RemoveRange(kept, _entries.Count - kept);
    }

    private int CountUpTo(Etag etag)
    {
        var low = 0;
        var high = _entries.Count;
        while (low < high)
        {
            var middle = (low + high) / 2;
            if (_entries[middle].Record.Header.Etag <= etag)
                low = middle + 1;
            else
                high = middle;
        }

        return low;
    }

    private sealed class Entry(SimulatedRecord record)
    {
        public SimulatedRecord Record { get; } = record;

        public bool Completed { get; set; }
    }
}
