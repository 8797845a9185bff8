using System.Runtime.InteropServices;
using KvCluster.Storage.Pages;
using TreePage = KvCluster.Storage.Pages.TreePage;

namespace KvCluster.Tests.Fuzzing;

/// <summary>
/// A tree's page with changes in it. If <see cref="PageStructure"/> accepts it, reading it must not depend on the memory around it and must not
/// change that memory. So each case runs twice, between zeros and between ones.
/// </summary>
internal static unsafe class FuzzedPage
{
    // Offsets within a page have 16 bits.
    private const int AroundBytes = 1 << 17;

    public static void Run(Random random)
    {
        var sound = MakeSound(random);
        var changed = Mutation.Of(random, sound, keepsLength: true, hot: Page.HeaderBytes + 128);
        var key = Mutation.RandomBytes(random, random.Next(12));
        var between0 = Use(changed, 0x00, key);
        var between1 = Use(changed, 0xFF, key);
        Assert.Equal(between0, between1);
    }

    private static byte[] MakeSound(Random random)
    {
        var bytes = new byte[Page.Bytes];
        fixed (byte* page = bytes)
        {
            var isBranch = random.Next(3) == 0;
            Page.Format(page, isBranch ? PageType.Branch : PageType.Leaf, []);
            var keys = Enumerable.Range(0, random.Next(1, 40))
                .Select(_ => Mutation.RandomBytes(random, random.Next(1, 30))).DistinctBy(Convert.ToHexString).ToList();
            keys.Sort(static (left, right) => left.AsSpan().SequenceCompareTo(right));
            for (var index = 0; index < keys.Count; index++)
            {
                if (isBranch)
                    TreePage.InsertChild(page, index, index == 0 ? [] : keys[index], new SubtreeLink(
                        new PageLink(PageRef.ToFile(random.Next(2, 900)), 1), new SubtreeSummary((ulong)random.Next(1, 900))));
                else if (random.Next(5) == 0)
                    TreePage.InsertTree(
                        page, index, keys[index], new PageLink(PageRef.ToFile(random.Next(2, 900)), 1), Mutation.RandomBytes(random, TreePage.TreeValueBytes));
                else if (random.Next(5) == 0)
                    InsertCompressed(page, index, keys[index], Mutation.RandomBytes(random, 30));
                else
                    Mutation.RandomBytes(random, 20).CopyTo(TreePage.InsertInline(page, index, keys[index], 20));
            }
        }

        return bytes;
    }

    private static void InsertCompressed(byte* page, int index, byte[] key, byte[] part)
    {
        byte[] value = [.. part, .. part, .. part, .. part, .. part, .. part, .. part, .. part, .. part, .. part];
        Assert.True(new ValueCompression().TryCompress(value.AsSpan(0, 5), value.AsSpan(5), out var compressed));
        compressed.CopyTo(TreePage.InsertInline(page, index, key, TreePage.CompressedInline(compressed.Length)));
    }

    private static string? Use(byte[] bytes, byte around, byte[] key)
    {
        var length = (2 * AroundBytes) + Page.Bytes;
        var memory = (byte*)NativeMemory.AlignedAlloc((nuint)length, Page.Bytes);
        try
        {
            var all = new Span<byte>(memory, length);
            all.Fill(around);
            var page = memory + AroundBytes;
            bytes.CopyTo(all[AroundBytes..]);
            if (PageStructure.Problem(page) is { } problem)
                return problem;
            var seen = Read(page, key);
            Assert.False(all[..AroundBytes].ContainsAnyExcept(around) || all[(AroundBytes + Page.Bytes)..].ContainsAnyExcept(around), "memory beside the page "
                + "has changed");
            return seen;
        }
        finally
        {
            NativeMemory.AlignedFree(memory);
        }
    }

    private static string Read(byte* page, byte[] key)
    {
        if (Page.Type(page) is not (PageType.Leaf or PageType.Branch))
            return "";
        var hash = new HashCode();
        var buffer = new byte[Page.KeyBytesMax];
        hash.Add(Page.Type(page) == PageType.Leaf ? TreePage.LowerBound(page, key, out _) : TreePage.FindChild(page, key));
        for (var index = 0; index < Page.Count(page); index++)
        {
            hash.AddBytes(buffer.AsSpan(0, TreePage.CopyKey(page, index, buffer)));
            hash.Add(TreePage.CellBytes(page, index));
            if (Page.Type(page) == PageType.Branch)
                hash.Add(HashCode.Combine(TreePage.Child(page, index)->Reference.Value, TreePage.Subtree(page, index)->Summary.Value));
            else if (TreePage.Reference(page, index) == null && TreePage.IsCompressed(Page.Cell(page, index)))
                hash.AddBytes(TreePage.TryDecompress(null!, Page.Cell(page, index)));
            else if (TreePage.HasTree(page, index) || TreePage.Reference(page, index) == null)
                hash.AddBytes(TreePage.Value(null!, page, index));
        }

        return hash.ToHashCode().ToString(System.Globalization.CultureInfo.InvariantCulture);
    }
}
