using System.Collections.Immutable;

namespace KvCluster.Testing;

/// <summary>Parts of sorted sets. Pure.</summary>
internal static class SortedRange
{
    /// <summary>The index of the first item that is not less than another one; the number of items if all are.</summary>
    public static int IndexFrom<T>(ImmutableSortedSet<T> set, T least)
    {
        var index = set.IndexOf(least);
        return index < 0 ? ~index : index;
    }

    /// <summary>The items of a range.</summary>
    /// <param name="set">The set.</param>
    /// <param name="bounds">The range.</param>
    /// <param name="at">Makes what stands for a key in searches.</param>
    /// <param name="reverse">Descending from the last one.</param>
    public static IEnumerable<T> Of<T>(ImmutableSortedSet<T> set, KeyBounds bounds, Func<ReadOnlyMemory<byte>, T> at, bool reverse)
    {
        var (first, end) = IndexesOf(set, bounds, at);
        for (var index = reverse ? end - 1 : first; index >= first && index < end; index += reverse ? -1 : 1)
            yield return set[index];
    }

    /// <summary>The number of items of a range.</summary>
    /// <inheritdoc cref="Of{T}" path="/param"/>
    public static int Count<T>(ImmutableSortedSet<T> set, KeyBounds bounds, Func<ReadOnlyMemory<byte>, T> at)
    {
        var (first, end) = IndexesOf(set, bounds, at);
        return Math.Max(0, end - first);
    }

    private static (int First, int End) IndexesOf<T>(ImmutableSortedSet<T> set, KeyBounds bounds, Func<ReadOnlyMemory<byte>, T> at) =>
        (IndexFrom(set, at(bounds.Lower)), bounds.Upper.IsEmpty ? set.Count : IndexFrom(set, at(bounds.Upper)));
}
