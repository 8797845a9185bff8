using System.Runtime.CompilerServices;

namespace KvCluster.Storage.Pages;

/// <summary>
/// Makes a delta of a whole leaf: what it has and its base has not, what it has otherwise, and keys that only its base has. Pure but for the block that it
/// takes; the batch that owns the leaf calls it.
/// </summary>
/// <remarks>
/// Also every key of the delta that the new one replaces, on the same base, is in it, with the value of the leaf or as a deleted key, although the base may say
/// the same. A checkpoint that runs, or that begins before the new delta is published, folds the older one into a page, which becomes the new one's base: a
/// key that had been put into the older one and was deleted since, and which the first base does not have, would be back. Where no checkpoint can fold anything
/// older than the delta that is replaced, keys of which that one says what the base says are left out.
/// </remarks>
internal static unsafe class LeafDifference
{
    /// <summary>The most entries of a delta: each takes a head, a slot and the header of a cell.</summary>
    private const int OwnMax = (ScratchPool.BlockBytesMax - Page.HeaderBytes) / (Page.EntryBytes + TreePage.LeafCellHeader);

    /// <summary>The delta, in a block of at most so many bytes; null if it would be larger.</summary>
    /// <param name="pool">Provides the block.</param>
    /// <param name="leaf">The whole leaf, with at least one entry.</param>
    /// <param name="whole">Its base.</param>
    /// <param name="link">The link to that.</param>
    /// <param name="before">The delta of the same base that it replaces; null if there is none.</param>
    /// <param name="keepsAll">Whether a checkpoint may fold a delta that is older than that.</param>
    /// <param name="bytesMax">The most bytes.</param>
    [SkipLocalsInit]
    public static byte* TryMake(ScratchPool pool, byte* leaf, byte* whole, PageLink link, byte* before, bool keepsAll, int bytesMax)
    {
        var isPut = stackalloc bool[LeafFill.EntriesMax];
        new Span<bool>(isPut, Page.Count(leaf)).Clear();
        var deleted = stackalloc Deleted[OwnMax];
        var deletedBefore = stackalloc Deleted[OwnMax];
        var sum = new Sum(bytesMax);
        var count = Compare(leaf, whole, isPut, deleted, ref sum);
        var countBefore = before == null || !sum.Fits ? 0 : AddKeysOf(before, keepsAll, leaf, whole, isPut, deletedBefore, ref sum);
        if (!sum.Fits)
            return null;
        var bytes = ScratchPool.BlockBytesFor(sum.Bytes);
        var delta = pool.RentBlock(bytes);
        DeltaPage.Format(delta, bytes, leaf, link);
        Fill(delta, leaf, isPut, new Span<Deleted>(deleted, count), new Span<Deleted>(deletedBefore, countBefore));
        DeltaPage.Appended(delta) = Page.Appended(leaf);
        return delta;
    }

    /// <summary>Notes in what a leaf differs from its base. Returns the number of keys that only the base has.</summary>
    private static int Compare(byte* leaf, byte* whole, bool* isPut, Deleted* deleted, ref Sum sum)
    {
        int at = 0, other = 0, count = Page.Count(leaf), otherCount = Page.Count(whole), deletedCount = 0;
        var isSamePrefix = Page.Prefix(leaf).SequenceEqual(Page.Prefix(whole));
        while ((at < count || other < otherCount) && sum.Fits)
        {
            // Most are the same.
            var same = isSamePrefix ? TreePage.CountSame(leaf, at, whole, other) : 0;
            (at, other) = (at + same, other + same);
            if (at == count && other == otherCount)
                break;
            var order = at == count ? 1 : other == otherCount ? -1 : isSamePrefix
                ? TreePage.CompareSuffixes(leaf, at, whole, other)
                : CompareKeys(leaf, at, whole, other);
            if (order > 0)
            {
                sum.Add(TreePage.DeletedEntryBytes(TreePage.KeyLength(whole, other)));
                if (sum.Fits)
                    deleted[deletedCount++] = new Deleted(at, whole, other);
                other++;
                continue;
            }
            if (order < 0 || !TreePage.HaveSameValue(Page.Cell(leaf, at), Page.Cell(whole, other)))
                Put(leaf, at, isPut, ref sum);
            other += order == 0 ? 1 : 0;
            at++;
        }
        return deletedCount;
    }

    /// <summary>Adds the keys of another delta of the same base. Returns the number of those that neither the leaf nor the base has.</summary>
    [SkipLocalsInit]
    private static int AddKeysOf(byte* before, bool keepsAll, byte* leaf, byte* whole, bool* isPut, Deleted* deleted, ref Sum sum)
    {
        var deletedCount = 0;
        Span<byte> buffer = stackalloc byte[Page.KeyBytesMax];
        for (var own = 0; own < Page.Count(before) && sum.Fits; own++)
        {
            var key = buffer[..TreePage.CopyKey(before, own, buffer)];
            var at = TreePage.LowerBound(leaf, key, out var isThere);
            if (isThere && isPut[at])
                continue;
            var inBase = TreePage.LowerBound(whole, key, out var isInBase);
            // What the base has and the leaf has not is among the deleted keys already. Otherwise both say the same.
            if ((isInBase && !isThere) || (!keepsAll && SaysTheSame(Page.Cell(before, own), isInBase ? Page.Cell(whole, inBase) : null)))
                continue;
            if (isThere)
            {
                Put(leaf, at, isPut, ref sum);
                continue;
            }
            sum.Add(TreePage.DeletedEntryBytes(key.Length));
            if (sum.Fits)
                deleted[deletedCount++] = new Deleted(at, before, own);
        }
        return deletedCount;
    }

    /// <summary>Whether a delta's cell says of its key what the base says, whose cell is null if it does not have the key.</summary>
    private static bool SaysTheSame(byte* own, byte* inBase) =>
        inBase == null ? TreePage.IsDeleted(own) : !TreePage.IsDeleted(own) && TreePage.HaveSameValue(own, inBase);

    private static void Put(byte* leaf, int at, bool* isPut, ref Sum sum)
    {
        if (isPut[at])
            return;
        isPut[at] = true;
        sum.Add(TreePage.EntryBytesWithoutPrefix(leaf, at));
    }

    private static void Fill(byte* delta, byte* leaf, bool* isPut, ReadOnlySpan<Deleted> deleted, ReadOnlySpan<Deleted> others)
    {
        int count = Page.Count(leaf);
        for (var at = 0; at <= count; at++)
        {
            while (TryTakeNext(at, ref deleted, ref others, out var next))
                Insert(delta, next);
            var from = at;
            // Up to the next deleted key, which is before an entry.
            while (at < count && isPut[at] && (at == from || !(IsAt(deleted, at) || IsAt(others, at))))
                at++;
            if (at == from)
                continue;
            TreePage.Append(delta, leaf, from, at);
            at--;
        }
    }

    private static bool IsAt(ReadOnlySpan<Deleted> deleted, int at) => !deleted.IsEmpty && deleted[0].At == at;

    /// <summary>The next deleted key before an entry of the leaf, of two lists in the order of their keys, which have none in common.</summary>
    private static bool TryTakeNext(int at, ref ReadOnlySpan<Deleted> deleted, ref ReadOnlySpan<Deleted> others, out Deleted next)
    {
        var (isHere, isThere) = (IsAt(deleted, at), IsAt(others, at));
        next = default;
        if (!isHere && !isThere)
            return false;
        if (!isHere || (isThere && CompareKeys(deleted[0].Page, deleted[0].Index, others[0].Page, others[0].Index) > 0))
        {
            next = others[0];
            others = others[1..];
        }
        else
        {
            next = deleted[0];
            deleted = deleted[1..];
        }
        return true;
    }

    [SkipLocalsInit]
    private static void Insert(byte* delta, in Deleted deleted)
    {
        Span<byte> key = stackalloc byte[Page.KeyBytesMax];
        TreePage.InsertDeleted(delta, Page.Count(delta), key[..TreePage.CopyKey(deleted.Page, deleted.Index, key)]);
    }

    [SkipLocalsInit]
    private static int CompareKeys(byte* page, int index, byte* other, int otherIndex)
    {
        Span<byte> key = stackalloc byte[Page.KeyBytesMax];
        return -TreePage.Compare(other, otherIndex, key[..TreePage.CopyKey(page, index, key)]);
    }

    /// <summary>A key that the leaf does not have: before which of its entries, and where it is written.</summary>
    private readonly struct Deleted(int at, byte* page, int index)
    {
        public readonly int At = at;
        public readonly int Index = index;
        public readonly byte* Page = page;
    }

    /// <summary>The bytes of a delta as it grows.</summary>
    private struct Sum(int bytesMax)
    {
        public int Bytes { get; private set; } = Page.HeaderBytes;

        public readonly bool Fits => Bytes <= bytesMax;

        public void Add(int bytes) => Bytes += bytes;
    }
}
