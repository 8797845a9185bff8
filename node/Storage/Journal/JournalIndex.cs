namespace KvCluster.Storage.Journal;

/// <summary>The records of the live journal in etag order, with the newest bodies in memory. Writer executor only.</summary>
/// <param name="origin">The record before the first one: the last record of a checkpoint, or none.</param>
/// <param name="bodyBytesMax">See <see cref="BodyBytesMax"/>.</param>
internal sealed class JournalIndex(RecordRef origin, long bodyBytesMax)
{
    /// <summary>What the index takes for one record, besides its body, in bytes.</summary>
    public const int EntryBytes = 136;

    /// <summary>
    /// Entries are kept in pieces of so many. The oldest are removed piece by piece, without a look at each, and no others are moved: there may be millions,
    /// and the writer has no time for them.
    /// </summary>
    private const int PieceEntries = 1_024;

    /// <summary>Each record follows the one before it by etag and checksum, the first one <see cref="Base"/>.</summary>
    private readonly List<Piece> _pieces = [];

    /// <summary>Entries of the first piece that are removed. Positions in the pieces count them.</summary>
    private int _start;

    /// <summary>The position in the pieces of the oldest entry whose body may be in memory.</summary>
    private int _bodiesFrom;
    private long _bodyBytes;

    private long _bodyBytesMax = bodyBytesMax;

    /// <summary>The value of <see cref="JournalEntry.BytesThrough"/> for <see cref="Base"/>.</summary>
    private long _bytesThroughBase;

    /// <summary>The record before the first entry. It has no body here.</summary>
    public RecordRef Base { get; private set; } = origin;

    /// <summary>Bytes of the bodies in memory.</summary>
    public long BodyBytes => _bodyBytes;

    /// <summary>Bytes of durable bodies to keep in memory for followers and for applying. The oldest beyond it are dropped.</summary>
    public long BodyBytesMax
    {
        set
        {
            _bodyBytesMax = value;
            DropOldBodies();
        }
    }

    /// <summary>Number of entries.</summary>
    public int Count { get; private set; }

    /// <summary>The newest record.</summary>
    public RecordRef Last => Count == 0 ? Base : this[Count - 1].Record;

    /// <summary>The entry at a position, 0 being the oldest.</summary>
    public JournalEntry this[int index] => EntryAt(_start + index);

    /// <summary>Appends an entry, which must follow the last one.</summary>
    public void Append(JournalEntry entry)
    {
        Invariant.Check(entry.Record.Follows(Last), $"Record {entry.Record} does not follow {Last}.");
        entry.BytesThrough = BytesThrough(Count) + entry.Bytes;
        var position = _start + Count;
        if (position / PieceEntries == _pieces.Count)
            _pieces.Add(new Piece());
        EntryAt(position) = entry;
        Count++;
        AddBodyBytes(position, entry.Body.Length);
        DropOldBodies();
    }

    /// <summary>The position of the first entry with a greater etag; <see cref="Count"/> if there is none.</summary>
    public int FirstAfter(Etag etag) => CountWhile(static (entry, etag) => entry.Record.Etag <= etag, etag);

    /// <summary>The position of the first entry that is in this segment or a later one, or that is not durable yet.</summary>
    public int FirstFrom(ulong segment) => CountWhile(static (entry, segment) => entry.IsDurable && entry.Segment < segment, segment);

    /// <summary>Journal bytes of the entries from one position up to, but not including, another.</summary>
    public long BytesOf(int first, int end) => BytesThrough(end) - BytesThrough(first);

    /// <summary>Journal bytes of the entries with a greater etag.</summary>
    public long BytesAfter(Etag etag) => BytesOf(FirstAfter(etag), Count);

    /// <summary>The entry with this etag; null if there is none.</summary>
    public JournalEntry? Find(Etag etag)
    {
        var next = FirstAfter(etag);
        return next > 0 && this[next - 1].Record.Etag == etag ? this[next - 1] : null;
    }

    /// <summary>Removes the entries from a position on and returns them in order.</summary>
    public List<JournalEntry> RemoveFrom(int index)
    {
        var removed = new List<JournalEntry>(Count - index);
        var end = _start + index;
        for (var position = end; position < _start + Count; position++)
        {
            removed.Add(EntryAt(position));
            AddBodyBytes(position, -EntryAt(position).Body.Length);
            EntryAt(position) = null!;
        }
        var pieces = (end + PieceEntries - 1) / PieceEntries;
        _pieces.RemoveRange(pieces, _pieces.Count - pieces);
        Count = index;
        _bodiesFrom = Math.Min(_bodiesFrom, end);
        return removed;
    }

    /// <summary>Removes the oldest entries, whose segments are recycled. Those of whole pieces are not looked at.</summary>
    public void RemoveOldest(int count)
    {
        if (count == 0)
            return;
        (Base, _bytesThroughBase) = (this[count - 1].Record, this[count - 1].BytesThrough);
        var (start, whole) = (_start + count, (_start + count) / PieceEntries);
        for (var position = Math.Max(_start, whole * PieceEntries); position < start; position++)
        {
            DropBody(position);
            EntryAt(position) = null!;
        }
        for (var piece = 0; piece < whole; piece++)
            _bodyBytes -= _pieces[piece].BodyBytes;
        _pieces.RemoveRange(0, whole);
        Count -= count;
        _start = start - (whole * PieceEntries);
        _bodiesFrom = Math.Max(_bodiesFrom, start) - (whole * PieceEntries);
    }

    /// <summary>Drops the oldest bodies beyond the bound. A body that is not durable yet exists only in memory and is kept.</summary>
    public void DropOldBodies()
    {
        while (_bodyBytes > _bodyBytesMax && _bodiesFrom < _start + Count && EntryAt(_bodiesFrom).IsDurable)
            DropBody(_bodiesFrom++);
    }

    private ref JournalEntry EntryAt(int position) => ref _pieces[position / PieceEntries].Entries[position % PieceEntries];

    private void DropBody(int position)
    {
        var entry = EntryAt(position);
        AddBodyBytes(position, -entry.Body.Length);
        entry.Drop();
    }

    private void AddBodyBytes(int position, int bytes)
    {
        _pieces[position / PieceEntries].BodyBytes += bytes;
        _bodyBytes += bytes;
    }

    /// <summary>How many of the first entries satisfy a condition that none of the later ones does.</summary>
    private int CountWhile<T>(Func<JournalEntry, T, bool> condition, T value)
    {
        int low = 0, high = Count;
        while (low < high)
        {
            var middle = (low + high) / 2;
            if (condition(this[middle], value))
                low = middle + 1;
            else
                high = middle;
        }
        return low;
    }

    // The bytes of all entries before this position.
    private long BytesThrough(int index) => index == 0 ? _bytesThroughBase : this[index - 1].BytesThrough;

    /// <summary>Some entries that follow each other.</summary>
    private sealed class Piece
    {
        public JournalEntry[] Entries { get; } = new JournalEntry[PieceEntries];

        /// <summary>Bytes of their bodies that are in memory.</summary>
        public long BodyBytes { get; set; }
    }
}
