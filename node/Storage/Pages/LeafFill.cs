using System.Runtime.CompilerServices;

namespace KvCluster.Storage.Pages;

/// <summary>
/// Appends entries to a leaf in the order of their keys. Nothing is searched, moved or counted twice: a head and a cell are written for each entry, and the
/// slots, which are behind all heads, at the end. Until <see cref="End"/> the page must not be read. Used by the batch that owns the page.
/// </summary>
internal unsafe ref struct LeafFill
{
    /// <summary>The most entries that a leaf can have: each takes a head, a slot and at least the header of a cell.</summary>
    public const int EntriesMax = Page.BodyBytes / (Page.EntryBytes + TreePage.LeafCellHeader);

    private readonly byte* _page;
    private readonly ulong* _heads;
    private readonly ushort* _slots;
    private readonly ReadOnlySpan<byte> _prefix;
    private readonly ReadOnlySpan<byte> _end;
    private readonly ulong _headEnd;
    private readonly int _countBefore;
    private readonly bool _dividesValues;
    private readonly ValueCompression? _compression;
    private ReadOnlySpan<byte> _last;
    private ulong _headLast;
    private int _count;
    private int _start;

    /// <param name="page">The leaf, which has at least one entry. The first key to be appended is known to be behind it.</param>
    /// <param name="end">The key at which the next leaf begins; empty if there is none.</param>
    /// <param name="slots">Memory for <see cref="EntriesMax"/> slots.</param>
    /// <param name="dividesValues">Whether the store divides values.</param>
    /// <param name="compression">Compresses the values of the tree; null if it has them as they are.</param>
    public LeafFill(byte* page, ReadOnlySpan<byte> end, ushort* slots, bool dividesValues, ValueCompression? compression)
    {
        _page = page;
        (_dividesValues, _compression) = (dividesValues, compression);
        _heads = Page.Heads(page);
        _slots = slots;
        _prefix = Page.Prefix(page);
        // An end without the prefix of the leaf's keys is greater than all keys that have it.
        var hasEnd = !end.IsEmpty && end.StartsWith(_prefix);
        _end = hasEnd ? end : default;
        _headEnd = hasEnd ? Page.Head(end[_prefix.Length..]) : ulong.MaxValue;
        _countBefore = _count = Page.Count(page);
        _headLast = _heads[_count - 1];
        _start = Page.CellsStart(page);
        Buffer.MemoryCopy(Page.Slots(page), slots, _count * sizeof(ushort), _count * sizeof(ushort));
    }

    /// <summary>
    /// Appends an entry whose value is passed in two parts. False if it does not fit, is not between the last one and the end, or does not begin with the
    /// leaf's prefix. The bytes of the key must not change before the next entry is appended.
    /// </summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public bool TryAppend(ReadOnlySpan<byte> key, ReadOnlySpan<byte> header, ReadOnlySpan<byte> body)
    {
        if (key.Length > Page.KeyBytesMax || !key.StartsWith(_prefix))
            return false;
        var suffix = key[_prefix.Length..];
        var head = Page.Head(suffix);
        if (head <= _headLast && (head < _headLast || _last.SequenceCompareTo(key) >= 0))
            return false;
        if (head >= _headEnd && (head > _headEnd || _end.SequenceCompareTo(key) <= 0))
            return false;
        // A value that would need pages of its own is left to the writer, which compresses it once and then looks where it fits.
        if (OverflowRun.IsNeeded(key.Length, header.Length + body.Length, _dividesValues))
            return false;
        var isCompressed = false;
        if (_compression is not null && _compression.TryCompress(header, body, out var compressed))
        {
            isCompressed = true;
            header = compressed;
            body = default;
        }
        var length = header.Length + body.Length;
        var start = _start - TreePage.InlineCellBytes(suffix.Length, length);
        if (start < Page.HeaderBytes + ((_count + 1) * Page.EntryBytes))
            return false;
        _heads[_count] = head;
        _slots[_count] = (ushort)start;
        var value = TreePage.WriteInlineCell(_page + start, suffix, isCompressed ? TreePage.CompressedInline(length) : length);
        header.CopyTo(new Span<byte>(value, header.Length));
        body.CopyTo(new Span<byte>(value + header.Length, body.Length));
        _last = key;
        (_headLast, _start) = (head, start);
        _count++;
        return true;
    }

    /// <summary>Completes the page, and returns how many entries were appended.</summary>
    public readonly int End()
    {
        var appended = _count - _countBefore;
        Page.Count(_page) = (ushort)_count;
        Page.CellsStart(_page) = (ushort)_start;
        Page.Appended(_page) += (ushort)appended;
        Buffer.MemoryCopy(_slots, Page.Slots(_page), _count * sizeof(ushort), _count * sizeof(ushort));
        return appended;
    }
}
