using System.Diagnostics.CodeAnalysis;
using Google.Protobuf;
using KvCluster.Replication.Log;

namespace KvCluster.Tests.Replication;

/// <summary>
/// A journal that a transcript writes by hand. A body is one byte for the epoch and one for the change; its checksum is the digit of its epoch.
/// </summary>
internal sealed class ListJournal : IJournalView
{
    private readonly List<RecordRef> _records = [];
    private RecordRef _base;
    private int _durable;

    public RecordRef Last => _records.Count == 0 ? _base : _records[^1];

    public RecordRef Durable => _durable == 0 ? _base : _records[_durable - 1];

    public long ShardTimeUs => 0;

    public static byte[] Body(RecordRef record) =>
        [(byte)record.Etag.Epoch, (byte)record.Etag.Change, (byte)record.Previous.Epoch, (byte)record.Previous.Change];

    public RecordRef Append(ulong epoch, ulong change)
    {
        var record = new RecordRef(new Etag(epoch, change), Last.Etag, (uint)epoch, Last.Checksum, 4, RecordFlags.None);
        _records.Add(record);
        return record;
    }

    public void Sync() => _durable = _records.Count;

    public void Truncate(Etag keep)
    {
        _records.RemoveAll(record => record.Etag > keep);
        _durable = Math.Min(_durable, _records.Count);
    }

    public bool TryFind(Etag etag, out RecordRef record)
    {
        record = etag == _base.Etag ? _base : _records.Find(candidate => candidate.Etag == etag);
        return record.Etag == etag;
    }

    public bool TryFindAtOrBefore(Etag etag, out RecordRef record)
    {
        var index = _records.FindLastIndex(candidate => candidate.Etag <= etag);
        record = index < 0 ? _base : _records[index];
        return index >= 0 || etag >= _base.Etag;
    }

    /// <summary>The records after <paramref name="after"/>, in order.</summary>
    public IEnumerable<RecordRef> Behind(Etag after) => _records.Where(record => record.Etag > after);

    /// <summary>Makes the journal begin after this record, as a checkpoint does that covers it.</summary>
    public void Trim(RecordRef covers)
    {
        var dropped = _records.RemoveAll(record => record.Etag <= covers.Etag);
        _durable = Math.Max(0, _durable - dropped);
        _base = covers;
    }

    /// <summary>A snapshot replaces everything.</summary>
    public void Replace(LogPosition covers)
    {
        _records.Clear();
        _durable = 0;
        _base = new RecordRef(covers.Etag, Etag.None, covers.Checksum, 0, 4, RecordFlags.None);
    }

    public bool TryVerify(ByteString body, [NotNullWhen(true)] out IVerifiedBody? verified)
    {
        verified = body.Length == 4
            ? new Verified(new RecordRef(new Etag(body[0], body[1]), new Etag(body[2], body[3]), body[0], body[2], 4, RecordFlags.None))
            : null;
        return verified is not null;
    }

    private sealed record Verified(RecordRef Record) : IVerifiedBody;
}
