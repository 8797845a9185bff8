using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Trees;

/// <summary>
/// Members in order, copied out of a snapshot, and how many of them other sets have. Each has its <see cref="Page.Head"/>, so that most comparisons need nothing else. One thread at a time.
/// </summary>
internal sealed class MemberList
{
    /// <summary>A step of a cursor costs about a sixth of a search in a large set.</summary>
    private const int StepsPerSearch = 6;

    private readonly ByteBuffer _bytes = new(0);
    private readonly List<int> _ends = [];
    private readonly List<ulong> _heads = [];

    /// <summary>Number of members.</summary>
    public int Count => _ends.Count;

    /// <summary>Bytes of all members.</summary>
    public int Bytes => _bytes.Count;

    /// <summary>A member.</summary>
    public ReadOnlySpan<byte> this[int index] => _bytes.Written[(index == 0 ? 0 : _ends[index - 1]).._ends[index]];

    /// <summary>Adds a member that is greater than all so far.</summary>
    public void Add(ReadOnlySpan<byte> member)
    {
        _bytes.Append(member);
        _ends.Add(_bytes.Count);
        _heads.Add(Page.Head(member));
    }

    /// <summary>How many members a set has in common with this list.</summary>
    /// <exception cref="CorruptStoreException">A page of the set is not what was written.</exception>
    public ulong CountIn(in StoredSet set)
    {
        using var cursor = set.Members();
        return set.Count > (ulong)Count * StepsPerSearch ? CountBySearches(cursor) : CountBySteps(cursor);
    }

    private ulong CountBySearches(SetCursor cursor)
    {
        var common = 0ul;
        for (var index = 0; index < Count && cursor.Seek(this[index]); index++)
        {
            if (cursor.Member.SequenceEqual(this[index]))
                common++;
        }
        return common;
    }

    private ulong CountBySteps(SetCursor cursor)
    {
        var common = 0ul;
        for (var index = 0; index < Count && cursor.MoveNext();)
        {
            index = LowerBound(cursor.Member, index, out var found);
            if (found)
                common++;
        }
        return common;
    }

    /// <summary>Index of the first member from one on that is not less than the given one; it gallops, because the caller's members ascend.</summary>
    private int LowerBound(ReadOnlySpan<byte> member, int from, out bool found)
    {
        var head = Page.Head(member);
        int low = from, step = 1;
        while (low + step < Count && _heads[low + step] < head)
        {
            low += step;
            step *= 2;
        }
        var high = Math.Min(low + step + 1, Count);
        while (low < high)
        {
            var middle = (low + high) >> 1;
            var order = _heads[middle] != head ? _heads[middle].CompareTo(head) : this[middle].SequenceCompareTo(member);
            if (order == 0)
            {
                found = true;
                return middle;
            }
            (low, high) = order < 0 ? (middle + 1, high) : (low, middle);
        }
        found = false;
        // Members with the same head may follow behind the last step.
        while (low < Count && _heads[low] == head && this[low].SequenceCompareTo(member) is var order && order <= 0)
        {
            if (order == 0)
            {
                found = true;
                return low;
            }
            low++;
        }
        return low;
    }
}
