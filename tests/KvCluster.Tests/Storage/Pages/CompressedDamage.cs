using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;

namespace KvCluster.Tests.Storage.Pages;

/// <summary>
/// Damages the first compressed value of a data file under checksums that are right, as a bug, failing memory or another replica might. The tree
/// <c>kv</c> must have one leaf.
/// </summary>
internal static unsafe class CompressedDamage
{
    /// <summary>What the value has behind its header cannot be decompressed any more.</summary>
    public static void BreakBlock(byte[] file) => Change(
        file, static value => new Span<byte>(value.Bytes + 1 + KvValue.HeaderBytesMax, Math.Min(1_000, value.CompressedBytes / 2)).Fill(0xFF));

    /// <summary>Another length of the value is recorded.</summary>
    /// <param name="file">The whole file.</param>
    /// <param name="lengthFor">The length of one with so many compressed bytes.</param>
    public static void RecordLength(byte[] file, Func<int, int> lengthFor) => Change(file, value => *value.Length = lengthFor(value.CompressedBytes));

    private static void Change(byte[] file, Action<Place> change)
    {
        fixed (byte* bytes = file)
        {
            var meta = Enumerable.Range(0, 2).Select(number => MetaPage.TryDecode(file.AsSpan(number * Page.Bytes, Page.Bytes), "data")!)
                .MaxBy(static meta => meta.Revision)!;
            ref var tree = ref meta.Trees[(int)TreeId.Kv];
            var leaf = bytes + tree.Link.Reference.Value;
            Assert.Equal(PageType.Leaf, Page.Type(leaf));
            var index = 0;
            while (!TreePage.IsCompressed(Page.Cell(leaf, index)))
                index++;
            var cell = Page.Cell(leaf, index);
            if (TreePage.Reference(leaf, index) is var link && link != null)
            {
                var run = bytes + link->Reference.Value;
                change(new Place(run + Page.HeaderBytes, (int*)(cell + TreePage.OverflowCellHeader), (int)OverflowRun.LengthOf(*(uint*)(cell + 4))));
                link->Checksum = Page.Checksum(run) = Page.ComputeChecksum(run, OverflowRun.PagesFor(Page.ValueLength(run)) * Page.Bytes);
            }
            else
            {
                var length = cell + TreePage.LeafCellHeader + TreePage.RestLength(*(ushort*)cell);
                var value = length + CompressedValue.LengthBytes;
                change(new Place(value, (int*)length, TreePage.InlineBytes(*(ushort*)(cell + 2)) - CompressedValue.LengthBytes));
            }
            tree.Link.Checksum = Page.Checksum(leaf) = Page.ComputeChecksum(leaf, Page.Bytes);
            meta.Encode(file.AsSpan((int)meta.PageNumber * Page.Bytes));
        }
    }

    /// <param name="bytes">The compressed bytes, or those of them that are in a run.</param>
    /// <param name="length">The recorded length of the value.</param>
    /// <param name="compressedBytes">How many compressed bytes there are.</param>
    private readonly struct Place(byte* bytes, int* length, int compressedBytes)
    {
        public byte* Bytes => bytes;

        public int* Length => length;

        public int CompressedBytes => compressedBytes;
    }
}
