using System.Runtime.CompilerServices;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Trees;

/// <summary>
/// Splits pages, redistributes entries between them and merges them, as <see cref="Rebalancing"/> decides. Pure: entries are copied from unchanged pages into
/// others, whose owners set the other fields. Used by the batch that owns the target pages.
/// </summary>
/// <remarks>
/// Every choice counts the incoming entry, so that it fits in the page where it belongs. The entries of a full page plus one always fit into two pages: no
/// leaf entry takes more than half of the space (<see cref="OverflowRun.IsNeeded(int, int, bool)"/>), and a separator takes at most 2,074 of a branch's 8,128
/// bytes.
/// </remarks>
internal static unsafe class PageSplit
{
    /// <summary>
    /// Splits a branch that has no space for a child. Both halves are written, and the child is in one of them. A separator that breaks the branch's
    /// prefix can only be at one of its ends; <see cref="Rebalancing"/> handles that case.
    /// </summary>
    /// <param name="source">The full branch.</param>
    /// <param name="index">Position of the child; not 0.</param>
    /// <param name="separator">Its key, including the branch's prefix.</param>
    /// <param name="reference">The reference to the child, a page in memory.</param>
    /// <param name="left">The left half, written here.</param>
    /// <param name="right">The right half, written here.</param>
    /// <param name="up">Receives the key of the right half.</param>
    /// <returns>The length of that key.</returns>
    public static int Branch(byte* source, int index, ReadOnlySpan<byte> separator, PageRef reference, byte* left, byte* right, Span<byte> up)
    {
        int count = Page.Count(source);
        var middle = Middle(source, index, TreePage.BranchEntryBytes(separator.Length - Page.PrefixLength(source)));
        // The child at the middle becomes the first of the right page, and its key moves up to the parent.
        int upLength;
        if (middle == index)
        {
            separator.CopyTo(up);
            upLength = separator.Length;
        }
        else
        {
            upLength = TreePage.CopyKey(source, middle < index ? middle : middle - 1, up);
        }
        FormatBranch(left, source, separators: middle - 1);
        FormatBranch(right, source, separators: count - middle);
        AppendWith(left, source, 0, middle, index, separator, reference);
        AppendWith(right, source, middle, count + 1, index, separator, reference);
        return upLength;
    }

    /// <summary>Splits a leaf to make room for a key. The key is not inserted; the half it belongs to has space for it.</summary>
    /// <param name="source">The full leaf.</param>
    /// <param name="index">Position of the key.</param>
    /// <param name="key">The key, including the leaf's prefix.</param>
    /// <param name="bytes">The most that its entry takes.</param>
    /// <param name="left">The left half, written here.</param>
    /// <param name="right">The right half, written here.</param>
    /// <param name="separator">Receives the key that separates them.</param>
    /// <returns>The length of that key.</returns>
    public static int Leaf(byte* source, int index, ReadOnlySpan<byte> key, int bytes, byte* left, byte* right, Span<byte> separator) =>
        LeafAt(source, Middle(source, index, bytes), index, key, left, right, separator);

    /// <summary>Splits a leaf directly behind the position of a key, which is not inserted and may not fit into the left half, to which it belongs.</summary>
    /// <inheritdoc cref="Leaf"/>
    public static int LeafBehind(byte* source, int index, ReadOnlySpan<byte> key, byte* left, byte* right, Span<byte> separator) =>
        LeafAt(source, index + 1, index, key, left, right, separator);

    [SkipLocalsInit]
    private static int LeafAt(byte* source, int middle, int index, ReadOnlySpan<byte> key, byte* left, byte* right, Span<byte> separator)
    {
        int count = Page.Count(source);
        var own = index < middle ? middle - 1 : middle;
        Span<byte> before = stackalloc byte[Page.KeyBytesMax], behind = stackalloc byte[Page.KeyBytesMax];
        before = index == middle - 1 ? before[..Copy(key, before)] : before[..TreePage.CopyKey(source, own - 1, before)];
        behind = index == middle ? behind[..Copy(key, behind)] : behind[..TreePage.CopyKey(source, own, behind)];
        TreePage.Rebuild(right, source, own, count, index < middle ? Page.KeyBytesMax : TreePage.CommonPrefix(source, own, count, key));
        TreePage.Rebuild(left, source, 0, own, index < middle ? TreePage.CommonPrefix(source, 0, own, key) : Page.KeyBytesMax);
        return Copy(Separator(before, behind), separator);
    }

    /// <summary>
    /// Redistributes the entries of two adjacent leaves evenly, counting a key that is to be inserted into one of them; afterwards the leaf it belongs to
    /// has space for it. False if no entry would move or the result does not fit; the targets are then undefined.
    /// </summary>
    /// <param name="first">The left leaf.</param>
    /// <param name="second">The right one.</param>
    /// <param name="index">Position of the key, counted over both leaves.</param>
    /// <param name="key">The key.</param>
    /// <param name="bytes">The most that its entry takes.</param>
    /// <param name="left">The new left leaf, written here.</param>
    /// <param name="right">The new right leaf, written here.</param>
    /// <param name="separator">Receives the key that separates them.</param>
    /// <param name="separatorLength">The length of that key.</param>
    [SkipLocalsInit]
    public static bool TryRedistribute(
        byte* first, byte* second, int index, ReadOnlySpan<byte> key, int bytes, byte* left, byte* right, Span<byte> separator, out int separatorLength)
    {
        separatorLength = 0;
        int firstCount = Page.Count(first), total = firstCount + Page.Count(second);
        var middle = MiddleOfTwo(first, second, index, bytes);
        var own = index < middle ? middle - 1 : middle;
        if (own == firstCount || own == 0 || own == total)
            return false;
        Span<byte> before = stackalloc byte[Page.KeyBytesMax], behind = stackalloc byte[Page.KeyBytesMax];
        before = index == middle - 1 ? before[..Copy(key, before)] : before[..CopyKeyOfTwo(first, second, own - 1, before)];
        behind = index == middle ? behind[..Copy(key, behind)] : behind[..CopyKeyOfTwo(first, second, own, behind)];
        separatorLength = Copy(Separator(before, behind), separator);
        var goesLeft = index < middle;
        return TryFill(left, first, second, 0, own, goesLeft ? key : default, goesLeft ? bytes : 0)
            && TryFill(right, first, second, own, total, goesLeft ? default : key, goesLeft ? 0 : bytes);
    }

    /// <summary>Merges two siblings into one page if together they fill at most three quarters of it.</summary>
    /// <param name="left">The left page.</param>
    /// <param name="right">The right page, of the same type.</param>
    /// <param name="separator">The key that separates them; in a branch it becomes the key of the right page's first child.</param>
    /// <param name="target">The merged page, written here; neither of the two.</param>
    [SkipLocalsInit]
    public static bool TryMerge(byte* left, byte* right, ReadOnlySpan<byte> separator, byte* target)
    {
        int leftCount = Page.Count(left), rightCount = Page.Count(right), leafOnly = Page.Type(left) == PageType.Leaf ? 0 : 1;
        Span<byte> first = stackalloc byte[Page.KeyBytesMax], last = stackalloc byte[Page.KeyBytesMax];
        first = first[..(leftCount > leafOnly ? TreePage.CopyKey(left, leafOnly, first) : Copy(separator, first))];
        last = last[..(rightCount > leafOnly ? TreePage.CopyKey(right, rightCount - 1, last) : Copy(separator, last))];
        var prefixLength = leafOnly == 0 && leftCount == 0 ? 0 : first.CommonPrefixLength(last);
        var bytes = Page.Used(left) + Page.Used(right) + (leafOnly * TreePage.BranchEntryBytes(separator.Length))
            + (leftCount * Math.Max(0, Page.PrefixLength(left) - prefixLength)) + (rightCount * Math.Max(0, Page.PrefixLength(right) - prefixLength))
            + ((leftCount + rightCount) * 8);
        if (bytes > Page.BodyBytes * 3 / 4)
            return false;
        Page.Format(target, Page.Type(left), last[..prefixLength], keepOwner: true);
        TreePage.Append(target, left, 0, leftCount);
        TreePage.Append(target, right, 0, rightCount, separator);
        return true;
    }

    /// <summary>The shortest key that is greater than the first and not greater than the second.</summary>
    public static ReadOnlySpan<byte> Separator(ReadOnlySpan<byte> before, ReadOnlySpan<byte> behind) => behind[..(before.CommonPrefixLength(behind) + 1)];

    /// <summary>
    /// The first position of the right half, counted with an incoming entry at <paramref name="index"/>, for which the larger half is as small as
    /// possible.
    /// </summary>
    private static int Middle(byte* page, int index, int bytes) => MiddleOfTwo(page, null, index, bytes);

    private static int MiddleOfTwo(byte* first, byte* second, int index, int bytes)
    {
        int firstCount = Page.Count(first), count = firstCount + (second is null ? 0 : Page.Count(second));
        var isBranch = Page.Type(first) == PageType.Branch;
        var right = bytes;
        for (var i = 0; i < count; i++)
            right += EntryBytesOfTwo(first, second, firstCount, i);
        int left = 0, middle = 0, least = int.MaxValue;
        for (var place = 1; place <= count; place++)
        {
            var moved = PlaceBytes(place - 1);
            (left, right) = (left + moved, right - moved);
            // A branch's first child has no key.
            var larger = Math.Max(left, isBranch ? right - PlaceBytes(place) + TreePage.BranchEntryBytes(0) : right);
            if (larger < least)
                (least, middle) = (larger, place);
        }
        Invariant.Check(middle > 0, $"A page with {count} entries cannot be split.");
        return middle;

        int PlaceBytes(int place) => place == index ? bytes : EntryBytesOfTwo(first, second, firstCount, place < index ? place : place - 1);
    }

    private static int EntryBytesOfTwo(byte* first, byte* second, int firstCount, int index) =>
        Page.EntryBytes + (index < firstCount ? TreePage.CellBytes(first, index) : TreePage.CellBytes(second, index - firstCount));

    private static int CopyKeyOfTwo(byte* first, byte* second, int index, Span<byte> destination) => index < Page.Count(first)
        ? TreePage.CopyKey(first, index, destination)
        : TreePage.CopyKey(second, index - Page.Count(first), destination);

    /// <summary>Copies children [from, to), counted with the new one at its index, to the end of a branch.</summary>
    private static void AppendWith(byte* target, byte* source, int from, int to, int index, ReadOnlySpan<byte> separator, PageRef reference)
    {
        if (index < from || index >= to)
        {
            var shift = index < from ? 1 : 0;
            TreePage.Append(target, source, from - shift, to - shift);
            return;
        }
        TreePage.Append(target, source, from, index);
        TreePage.InsertChild(target, Page.Count(target), separator, SubtreeLink.InMemory(reference));
        TreePage.Append(target, source, index, to - 1);
    }

    /// <summary>Both halves keep the prefix of the whole branch. A single separator is stored whole, which fits.</summary>
    private static void FormatBranch(byte* target, byte* source, int separators) =>
        Page.Format(target, PageType.Branch, separators < 2 ? default : Page.Prefix(source), keepOwner: true);

    /// <summary>
    /// Fills a page with entries [from, to) of two leaves, under the prefix that they share with the key. False when they do not fit together with that
    /// key's entry.
    /// </summary>
    [SkipLocalsInit]
    private static bool TryFill(byte* target, byte* first, byte* second, int from, int to, ReadOnlySpan<byte> key, int keyEntryBytes)
    {
        int firstCount = Page.Count(first);
        Span<byte> low = stackalloc byte[Page.KeyBytesMax], high = stackalloc byte[Page.KeyBytesMax];
        low = low[..CopyKeyOfTwo(first, second, from, low)];
        high = high[..CopyKeyOfTwo(first, second, to - 1, high)];
        var prefixLength = to - from + (keyEntryBytes > 0 ? 1 : 0) > 1 ? low.CommonPrefixLength(high) : 0;
        if (keyEntryBytes > 0)
            prefixLength = Math.Min(prefixLength, low.CommonPrefixLength(key));
        var bytes = Page.PrefixBytes(prefixLength) + keyEntryBytes;
        for (var i = from; i < to; i++)
            bytes += EntryBytesOfTwo(first, second, firstCount, i) + Math.Max(0, Page.PrefixLength(i < firstCount ? first : second) - prefixLength);
        if (bytes > Page.BodyBytes)
            return false;
        Page.Format(target, PageType.Leaf, low[..prefixLength], keepOwner: true);
        if (from < firstCount)
            TreePage.Append(target, first, from, Math.Min(to, firstCount));
        if (to > firstCount)
            TreePage.Append(target, second, Math.Max(from, firstCount) - firstCount, to - firstCount);
        return true;
    }

    private static int Copy(ReadOnlySpan<byte> key, Span<byte> destination)
    {
        key.CopyTo(destination);
        return key.Length;
    }
}
