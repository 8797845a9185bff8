using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Trees;

/// <summary>
/// Where pages are split, shared and joined. Pure: entries come from pages that stay as they are and go into others, whose owners say what they are; used by the
/// batch that owns those.
/// </summary>
/// <remarks>
/// Each choice counts the entry that is coming in, so that it fits wherever it goes. A page of either type takes one entry more than fills it, divided in two:
/// no entry of a leaf takes more than half of the room (<see cref="TreePage.IsOverflow(int, int)"/>), and a separator at most 2,066 bytes of a branch's 8,128.
/// </remarks>
internal static unsafe class PageSplit
{
    /// <summary>
    /// Splits a branch with a child that does not fit in: both halves are written, the child in one of them. A separator that breaks the branch's prefix goes where only ends
    /// can (<see cref="WriteBatch"/>), not here.
    /// </summary>
    /// <param name="source">The full branch.</param>
    /// <param name="index">Where the child belongs; not 0.</param>
    /// <param name="separator">Its key, with the branch's prefix.</param>
    /// <param name="reference">The child, a page in memory.</param>
    /// <param name="left">Written.</param>
    /// <param name="right">Written.</param>
    /// <param name="up">Gets the key of the right one.</param>
    /// <returns>The length of that key.</returns>
    public static int Branch(byte* source, int index, ReadOnlySpan<byte> separator, ulong reference, byte* left, byte* right, Span<byte> up)
    {
        int count = Page.Count(source);
        var middle = Middle(source, index, TreePage.BranchEntryBytes(separator.Length - Page.PrefixLength(source)));
        // The child at the middle leads the right page, and its key goes up.
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

    /// <summary>Splits a leaf into which a key is coming, which is not put into either half: there is room for it in its own.</summary>
    /// <param name="source">The full leaf.</param>
    /// <param name="index">Where the key belongs.</param>
    /// <param name="key">The key; with the leaf's prefix.</param>
    /// <param name="bytes">What its entry takes at most.</param>
    /// <param name="left">Written.</param>
    /// <param name="right">Written.</param>
    /// <param name="separator">Gets the key that tells them apart.</param>
    /// <returns>The length of that key.</returns>
    public static int Leaf(byte* source, int index, ReadOnlySpan<byte> key, int bytes, byte* left, byte* right, Span<byte> separator)
    {
        int count = Page.Count(source);
        var middle = Middle(source, index, bytes);
        var own = index < middle ? middle - 1 : middle;
        Span<byte> before = stackalloc byte[Page.KeyBytesMax], behind = stackalloc byte[Page.KeyBytesMax];
        before = index == middle - 1 ? before[..Copy(key, before)] : before[..TreePage.CopyKey(source, own - 1, before)];
        behind = index == middle ? behind[..Copy(key, behind)] : behind[..TreePage.CopyKey(source, own, behind)];
        TreePage.Rebuild(right, source, own, count, index < middle ? Page.KeyBytesMax : PrefixWith(source, own, count, key));
        TreePage.Rebuild(left, source, 0, own, index < middle ? PrefixWith(source, 0, own, key) : Page.KeyBytesMax);
        return Copy(Separator(before, behind), separator);
    }

    /// <summary>
    /// Shares the entries of two neighbouring leaves evenly, counting a key that is coming into one of them: afterwards there is room for it in its own. False, and neither
    /// target is of use, if nothing would move or it does not fit.
    /// </summary>
    /// <param name="first">The left leaf.</param>
    /// <param name="second">The right one.</param>
    /// <param name="index">Where the key belongs, counted over both.</param>
    /// <param name="key">The key.</param>
    /// <param name="bytes">What its entry takes at most.</param>
    /// <param name="left">Written.</param>
    /// <param name="right">Written.</param>
    /// <param name="separator">Gets the key that tells them apart.</param>
    /// <param name="separatorLength">Its length.</param>
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

    /// <summary>Writes the entries of two neighbours into one page, when together they fill at most three quarters.</summary>
    /// <param name="left">The left one.</param>
    /// <param name="right">The right one, of the same type.</param>
    /// <param name="separator">The key that tells them apart; a branch's first child gets it back.</param>
    /// <param name="target">Written; neither of the two.</param>
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

    /// <summary>The shortest key that is greater than one and not greater than the other.</summary>
    public static ReadOnlySpan<byte> Separator(ReadOnlySpan<byte> before, ReadOnlySpan<byte> behind) => behind[..(before.CommonPrefixLength(behind) + 1)];

    /// <summary>
    /// The first place of the right half, counted with an entry that is coming in at <paramref name="index"/>: where the larger half is as small as it can be.
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
    private static void AppendWith(byte* target, byte* source, int from, int to, int index, ReadOnlySpan<byte> separator, ulong reference)
    {
        if (index < from || index >= to)
        {
            var shift = index < from ? 1 : 0;
            TreePage.Append(target, source, from - shift, to - shift);
            return;
        }
        TreePage.Append(target, source, from, index);
        TreePage.InsertChild(target, Page.Count(target), separator, reference, 0);
        TreePage.Append(target, source, index, to - 1);
    }

    /// <summary>The prefix that entries [from, to) of a leaf have in common with a key.</summary>
    private static int PrefixWith(byte* page, int from, int to, ReadOnlySpan<byte> key)
    {
        if (from == to)
            return 0;
        Span<byte> other = stackalloc byte[Page.KeyBytesMax];
        var common = key.CommonPrefixLength(other[..TreePage.CopyKey(page, from, other)]);
        return Math.Min(common, key.CommonPrefixLength(other[..TreePage.CopyKey(page, to - 1, other)]));
    }

    /// <summary>The separators of a half keep the prefix of the whole; one alone is stored whole, and fits.</summary>
    private static void FormatBranch(byte* target, byte* source, int separators) =>
        Page.Format(target, PageType.Branch, separators < 2 ? default : Page.Prefix(source), keepOwner: true);

    /// <summary>Fills a page with entries [from, to) of two, under the prefix that they and the key have in common; false when they do not fit with that key's entry.</summary>
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
