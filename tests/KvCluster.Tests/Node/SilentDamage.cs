using KvCluster.Storage.Control;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;

namespace KvCluster.Tests.Node;

/// <summary>
/// Changes a value in a replica's data file as a bug in applying records or failing memory would: all checksums up to the meta page are correct, so
/// only the trees of other replicas reveal it. For a stopped node whose keys lie in one leaf.
/// </summary>
internal static class SilentDamage
{
    public static void ChangeValue(string replicaDirectory, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to)
    {
        Assert.Equal(from.Length, to.Length);
        var layout = new StoreLayout(replicaDirectory);
        var path = StoreLayout.Data(layout.State(layout.States(LocalDisk.Instance)[^1]));
        var file = File.ReadAllBytes(path);
        var metas = new[] { 0, 1 }.Select(number => MetaPage.TryDecode(file.AsSpan(number * Page.Bytes, Page.Bytes), path));
        var newest = metas.OfType<MetaPage>().MaxBy(meta => meta.Revision)!;
        ref var root = ref newest.Trees[(int)TreeId.Kv];
        var leaf = file.AsSpan((int)root.Link.Reference.Value, Page.Bytes);
        Assert.Equal((byte)PageType.Leaf, leaf[4]);
        var at = leaf.IndexOf(from);
        Assert.True(at > 0, "The value is not in the leaf.");
        to.CopyTo(leaf[at..]);
        root.Link.Checksum = Crc32C.Of(leaf[sizeof(uint)..]);
        BitConverter.TryWriteBytes(leaf, root.Link.Checksum);
        newest.Encode(file.AsSpan((int)newest.PageNumber * Page.Bytes, Page.Bytes));
        File.WriteAllBytes(path, file);
    }
}
