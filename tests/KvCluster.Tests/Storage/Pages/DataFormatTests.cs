using KvCluster.Disk;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Pages;

namespace KvCluster.Tests.Storage.Pages;

/// <summary>Pins the data file's bytes as FORMAT.md describes them. A change here is a new format version.</summary>
public sealed class DataFormatTests
{
    /// <summary>Files with all kinds of keys, read by the document alone.</summary>
    [Theory]
    [MemberData(nameof(KeyProfile.NamesOfSmall), MemberType = typeof(KeyProfile))]
    public void File_ReadByTheDocumentAlone_HoldsWhatWasWritten(string profile) => Seeds.Run(2, random =>
    {
        var (decoder, seen) = WriteAndRead(KeyProfile.Of(profile), random, compresses: false);
        Assert.Equal((6u, (0, 0)), (decoder.Version, decoder.Compressed));
        Assert.True(seen.Depth > 1 || profile == "zeros", $"The tree has {seen.Depth} levels.");
        Assert.True(seen.Prefix > 10 || profile != "paths", $"The longest prefix has only {seen.Prefix} bytes.");
    });

    [Fact]
    public void File_WithCompressedValues_ReadByTheDocumentAlone_HoldsWhatWasWritten() => Seeds.Run(2, random =>
    {
        var (decoder, _) = WriteAndRead(KeyProfile.Compressible, random, compresses: true);
        Assert.Equal(7u, decoder.Version);
        Assert.True(decoder.Compressed is { Inline: > 50, InRuns: > 5 }, $"Only {decoder.Compressed} values are compressed.");
    });

    private static (DataFileDecoder Decoder, (int Prefix, int Depth) Seen) WriteAndRead(KeyProfile keys, Random random, bool compresses)
    {
        using var store = new ModelStore(new PageStoreOptions { MapBytes = 1L << 30, CompressesValues = compresses });
        for (var round = 0; round < 3; round++)
        {
            store.Batch(batch =>
            {
                for (var i = 0; i < 600; i++)
                    batch.Put(ModelStore.Trees[i % 8 == 0 ? 1 : 0], keys.Key(random), keys.Value(random));
                for (var i = 0; i < 60; i++)
                    batch.ChangeSomeSet(keys, random);
                for (var member = 0; member < 800; member++)
                    batch.AddMember([200], [(byte)round, (byte)(member >> 8), (byte)member]);
                foreach (var key in batch[TreeId.Kv].Keys.Where((_, index) => index % 5 == round).ToArray())
                    batch.Delete(TreeId.Kv, key);
            });
            store.Publish();
            store.Checkpoint();
        }
        var decoder = new DataFileDecoder(store.Disk.ReadAll("data"));
        Assert.Equal(store.Published.Etag, decoder.Etag);
        Assert.Equal(store.Published.ShardTime, decoder.ShardTime);
        foreach (var tree in ModelStore.Trees)
        {
            var expected = store.Published[tree];
            var found = decoder.ReadTree((int)tree);
            Assert.Equal(expected.Select(entry => ByteKeys.Print(entry.Key)), found.Select(entry => ByteKeys.Print(entry.Key)));
            Assert.All(found, entry => Assert.Equal(expected[entry.Key], entry.Value));
        }
        // The trees of large sets have levels of their own.
        var seen = decoder.Seen;
        var (sets, large) = decoder.ReadSets();
        Assert.Equal(store.Published.Sets.Keys.Select(key => ByteKeys.Print(key)), sets.Select(entry => ByteKeys.Print(entry.Key)));
        Assert.All(sets, entry => Assert.Equal(store.Published.Sets[entry.Key].Etag, entry.Set.Etag));
        Assert.All(
            sets, entry => Assert.Equal(store.Published.Sets[entry.Key].Members.Select(Convert.ToHexString), entry.Set.Members.Select(Convert.ToHexString)));
        Assert.True(large > 0, "No set is large.");
        decoder.CheckFreeMap();
        return (decoder, seen);
    }

    [Theory]
    [MemberData(nameof(KeyProfile.NamesOfLarge), MemberType = typeof(KeyProfile))]
    [Trait("Turn", "5")]
    public void File_ReadByTheDocumentAlone_HoldsWhatWasWritten_WithLargeEntries(string profile) => File_ReadByTheDocumentAlone_HoldsWhatWasWritten(profile);

    [Fact]
    public void MetaPageAndLeaf_Bytes_ArePinned()
    {
        using var disk = new SimulatedDisk();
        byte[] identity = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
        using (var store = PageStore.Create(disk, "data", new PageStoreOptions { MapBytes = 1 << 26, CompressesValues = false }, identity))
        {
            var batch = store.Begin();
            batch.Put(TreeId.Kv, "b"u8, "two"u8);
            batch.Put(TreeId.Kv, "abcdefghij"u8, "1"u8);
            (batch.ShardTime, batch.WallTime) = (0x0102030405060708, 0x1112131415161718);
            store.Roots.Seal(batch, new Etag(0x0102, 0x0304));
            store.Roots.Publish(new Etag(0x0102, 0x0304));
            var checkpoint = store.BeginCheckpoint(etag => new CheckpointPosition(etag, new JournalPosition(0x0A0B, 0x3000), 0xA1B2C3D4), Etag.MaxValue)!;
            checkpoint.Write();
            store.FinishCheckpoint(checkpoint);
        }
        var file = disk.ReadAll("data");
        var leaf = (int)BitConverter.ToUInt64(file, 8192 + 128);
        Assert.Equal(
            "06000000" + "4B56434441544100" + "06000000" + "00200000" + "0300000000000000" + "0102030405060708090A0B0C0D0E0F10",
            Convert.ToHexString(file.AsSpan(8192 + 4, 44)));
        Assert.Equal(
            "D4C3B2A1" + "0403000000000000" + "0201000000000000" + "0B0A000000000000" + "0030000000000000" + "0807060504030201" + "1817161514131211",
            Convert.ToHexString(file.AsSpan(8192 + 68, 52)));
        Assert.Equal("00000000" + "0200000000000000" + "0000000000000000", Convert.ToHexString(file.AsSpan(8192 + 128 + 12, 20)));
        Assert.Equal(
            "01000200" + Convert.ToHexString(BitConverter.GetBytes((ulong)(leaf / 8192))) + "0403000000000000" + "0201000000000000" + "0000" + "F21F" + "0000",
            Convert.ToHexString(file.AsSpan(leaf + 4, 34)));
        Assert.Equal("6867666564636261" + "0000000000000062" + "F21F" + "F91F", Convert.ToHexString(file.AsSpan(leaf + 64, 20)));
        Assert.Equal("0A000100" + "696A" + "31" + "01000300" + "74776F", Convert.ToHexString(file.AsSpan(leaf + 0x1FF2, 14)));
    }
}
