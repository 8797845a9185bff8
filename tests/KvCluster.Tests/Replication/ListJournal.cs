using KvCluster.Replication;

namespace KvCluster.Tests.Replication;

/// <summary>A journal that a transcript writes by hand. A body is one byte for the epoch and one for the change; its checksum is its epoch's digit.</summary>
internal sealed class ListJournal : IJournalView
{
    private readonly List<JournalRecord> _records = [];
    private int _durable;

    public JournalRecord Last => _records.Count == 0 ? default : _records[^1];

    public JournalRecord Durable => _durable == 0 ? default : _records[_durable - 1];

    public static byte[] Body(JournalRecord record) =>
        [(byte)record.Etag.Epoch, (byte)record.Etag.Change, (byte)record.Previous.Epoch, (byte)record.Previous.Change];

    public JournalRecord Append(ulong epoch, ulong change)
    {
        var record = new JournalRecord(new Etag(epoch, change), (uint)epoch, Last.Etag, Last.Checksum, 4);
        _records.Add(record);
        return record;
    }

    public void Sync() => _durable = _records.Count;

    public void Cut(Etag keep)
    {
        _records.RemoveAll(record => record.Etag > keep);
        _durable = Math.Min(_durable, _records.Count);
    }

    public bool TryFind(Etag etag, out JournalRecord record)
    {
        record = _records.Find(candidate => candidate.Etag == etag);
        return record.Etag == etag;
    }

    public bool TryFindAtOrBefore(Etag etag, out JournalRecord record)
    {
        record = _records.FindLast(candidate => candidate.Etag <= etag);
        return true;
    }

    public bool TryVerify(ReadOnlySpan<byte> body, out JournalRecord record)
    {
        record = body.Length == 4 ? new JournalRecord(new Etag(body[0], body[1]), body[0], new Etag(body[2], body[3]), body[2], 4) : default;
        return body.Length == 4;
    }
}
