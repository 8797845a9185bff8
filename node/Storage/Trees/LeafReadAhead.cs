using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Trees;

/// <summary>
/// Makes the system read the leaves that a forward scan will enter, while it reads others: the more, the more leaves it has passed. The kernel does not do it,
/// because the mapping is meant for random access, and reads 4 KiB at a time. Owned by a cursor.
/// </summary>
internal unsafe struct LeafReadAhead
{
    /// <summary>The leaves that the first step asks for. A short list of keys asks for none, because it ends in the leaf in which it began.</summary>
    private const int LeavesMin = 4;

    /// <summary>The most leaves ahead: half a megabyte, which takes a disk longer than one request does.</summary>
    private const int LeavesMax = 64;

    private nint _parent;
    private int _leaves;

    /// <summary>The index of the first leaf of the parent that was not asked for.</summary>
    private int _end;

    /// <summary>The scan goes on to a leaf of this parent.</summary>
    /// <param name="space">The pages.</param>
    /// <param name="parent">The parent.</param>
    /// <param name="next">The index of the leaf behind that one.</param>
    public void Step(PageSpace space, byte* parent, int next)
    {
        if (_parent != (nint)parent)
            (_parent, _end) = ((nint)parent, next);
        if (_end - next > _leaves / 2)
            return;
        _leaves = Math.Clamp(_leaves * 2, LeavesMin, LeavesMax);
        var from = Math.Max(_end, next);
        _end = Math.Min(Page.Count(parent), next + _leaves);
        var last = _end - 1;
        while (last >= from && Reference(parent, last).IsScratch)
            last--;
        // What was used lately is in memory altogether. If the last of these leaves is there, the others are most likely, too.
        if (last < from || !space.TryBeginRead(Reference(parent, last).Number, 1))
            return;
        for (var index = from; index < last;)
        {
            var count = RunLength(parent, index, last);
            if (Reference(parent, index) is { IsScratch: false } first)
                space.TryBeginRead(first.Number, count);
            index += count;
        }
    }

    private static PageRef Reference(byte* parent, int index) => PageLink.Load(TreePage.Child(parent, index));

    /// <summary>The children from an index on whose pages follow each other in the file; at least one.</summary>
    private static int RunLength(byte* parent, int from, int end)
    {
        var first = Reference(parent, from);
        var index = from + 1;
        while (index < end && Reference(parent, index).Value == first.Value + ((ulong)(index - from) * Page.Bytes))
            index++;
        return index - from;
    }
}
