using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Trees;

/// <summary>
/// Makes the system read the leaves that a forward scan will enter, while it reads others: the more, the more leaves it has passed. The kernel does not do it,
/// because the mapping is meant for random access, and reads 4 KiB at a time. Where leaves follow each other in the file, the scan reads them by calls, and the
/// kernel reads ahead. Reading ahead goes on in the next parent before the scan gets there, because at each parent
/// the scan would wait for two reads, one after the other. Owned by a cursor.
/// </summary>
internal unsafe struct LeafReadAhead
{
    /// <summary>The leaves that the first step asks for. A short list of keys asks for none, because it ends in the leaf in which it began.</summary>
    private const int LeavesMin = 4;

    /// <summary>The most leaves ahead: two megabytes, which take a disk longer than one request does.</summary>
    private const int LeavesMax = 256;

    /// <summary>
    /// Of leaves that follow each other in the file, where the system reads ahead by itself, only so many are asked for: it begins with few.
    /// </summary>
    private const int RunHeadMax = 16;

    /// <summary>
    /// Leaves that the scan reads by calls after one was found that is not in memory: 32 MiB, more than a system reads ahead, so that what it has read ahead
    /// does not look like a tree that is in memory.
    /// </summary>
    private const int CallsMax = 4_096;

    private int _leaves;

    /// <summary>Leaves that are still to be read by calls.</summary>
    private int _calls;

    /// <summary>The last parent that was asked for before its leaves.</summary>
    private PageRef _sibling;

    /// <summary>The parent whose leaves are asked for: the scan's, or the one after it.</summary>
    private nint _parent;

    /// <summary>The index of the first leaf of that parent that was not asked for.</summary>
    private int _end;

    /// <summary>
    /// Whether the scan should read its next leaf by a call even if that was verified before, because leaves have left memory since. The system does not read
    /// ahead of a scan that meets them in the mapping.
    /// </summary>
    public readonly bool ReadsByCalls => _calls > 0;

    /// <summary>The scan goes on to a leaf of this parent.</summary>
    /// <param name="space">The pages.</param>
    /// <param name="parent">The parent.</param>
    /// <param name="next">The index of the leaf behind that one.</param>
    /// <param name="sibling">The link to the parent after it; null if there is none with the same parent.</param>
    public void Step(PageSpace space, byte* parent, int next, PageLink* sibling)
    {
        _calls -= _calls > 0 ? 1 : 0;
        var count = Page.Count(parent);
        var isBeyond = _parent != (nint)parent && sibling != null && _parent == (nint)space.Locate(PageLink.Load(sibling));
        if (!isBeyond && _parent != (nint)parent)
            (_parent, _end) = ((nint)parent, next);
        var ahead = isBeyond ? count - next + _end : Math.Max(_end, next) - next;
        if (ahead > _leaves / 2)
            return;
        _leaves = Math.Clamp(_leaves * 2, LeavesMin, LeavesMax);
        var wanted = _leaves - ahead;
        if (!isBeyond)
        {
            var from = Math.Max(_end, next);
            _end = Math.Min(count, from + wanted);
            Begin(space, parent, from, _end);
            wanted -= _end - from;
            if (_end < count || sibling == null)
                return;
            // If the next parent has to be read first, its leaves are asked for in a later step. Until then those of this one are read.
            var reference = PageLink.Load(sibling);
            var isAsked = _sibling == reference;
            _sibling = reference;
            if (!isAsked && !reference.IsScratch && space.TryBeginRead(reference.Number, 1))
                return;
            (_parent, _end) = ((nint)space.ResolveNode(sibling), 0);
        }
        var first = _end;
        _end = Math.Min(Page.Count((byte*)_parent), first + wanted);
        Begin(space, (byte*)_parent, first, _end);
    }

    // Begins to read the leaves from one index up to another.
    private void Begin(PageSpace space, byte* parent, int from, int end)
    {
        var last = end - 1;
        while (last >= from && Reference(parent, last).IsScratch)
            last--;
        if (last < from)
            return;
        var most = space.ReadsAhead ? RunHeadMax : int.MaxValue;
        while (space.ReadsAhead && from > 0 && from <= last && Follows(parent, from))
            from++;
        // What was used lately is in memory altogether. If the last of these leaves is there, the others are most likely, too. If the system reads it ahead,
        // this only asks.
        if (!space.TryBeginRead(Reference(parent, last).Number, from > last ? 0 : 1))
            return;
        _calls = CallsMax;
        for (var index = from; index < last;)
        {
            var count = RunLength(parent, index, last);
            if (Reference(parent, index) is { IsScratch: false } first)
                space.TryBeginRead(first.Number, Math.Min(count, most));
            index += count;
        }
    }

    private static PageRef Reference(byte* parent, int index) => PageSpace.FileReference(PageLink.Load(TreePage.Child(parent, index)));

    /// <summary>Whether the page of a child comes directly after that of the child before it.</summary>
    private static bool Follows(byte* parent, int index) => Reference(parent, index).Value == Reference(parent, index - 1).Value + Page.Bytes;

    /// <summary>The children from an index on whose pages follow each other in the file; at least one.</summary>
    private static int RunLength(byte* parent, int from, int end)
    {
        var index = from + 1;
        while (index < end && Follows(parent, index))
            index++;
        return index - from;
    }
}
