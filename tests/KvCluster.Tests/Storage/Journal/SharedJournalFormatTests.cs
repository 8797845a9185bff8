using KvCluster.Disk;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Shared;

namespace KvCluster.Tests.Storage.Journal;

/// <summary>Pins the bytes of the shared journal that FORMAT.md describes. A change here is a new format version.</summary>
public sealed class SharedJournalFormatTests
{
    private const string Path = "/shared/0";
    private static readonly SharedBlock Block = new(0x1122334455667788, 0x0102, 0x0103, 0x0104, 0x05, 0x0607, 0x0809, 0xA1B2C3D4, 0xE5F60718);
    private static readonly SharedEntry Entry = new(
        "shards/1/x"u8.ToArray(), new ReplicaId(0x0102), 0x1122334455667788, 0x2000, new Etag(0x0304, 0x0506), 0x0708, 0xA1B2C3D4);

    [Fact]
    public void BlockHeader_Bytes_ArePinned()
    {
        var bytes = new byte[SharedBlock.HeaderBytes];
        Block.WriteTo(bytes);
        Assert.Equal(
            "4B564231" + "01000000" + "8877665544332211" + "0201000000000000" + "0301000000000000" + "0401000000000000"
            + "05000000" + "07060000" + "09080000" + "D4C3B2A1" + "1807F6E5" + ChecksumOf(bytes.AsSpan(..60)),
            Convert.ToHexString(bytes));
        Assert.True(SharedBlock.TryRead(bytes, Path, out var read));
        Assert.Equal(Block, read);
        Assert.Equal((64 + 5, 64 + 5 + 0x0607, 4096), (read.ContentOffset, read.RepeatedOffset, read.Bytes));
    }

    [Fact]
    public void BlockHeader_AnyFlippedBit_IsNone()
    {
        var bytes = new byte[SharedBlock.HeaderBytes];
        Block.WriteTo(bytes);
        for (var bit = 0; bit < 8 * bytes.Length; bit++)
        {
            bytes[bit / 8] ^= (byte)(1 << (bit % 8));
            Assert.False(SharedBlock.TryRead(bytes, Path, out _));
            bytes[bit / 8] ^= (byte)(1 << (bit % 8));
        }
        Assert.False(SharedBlock.TryRead(bytes.AsSpan(..^1), Path, out _));
    }

    [Theory]
    [InlineData(40)]
    [InlineData(44)]
    [InlineData(48)]
    public void BlockHeader_ALengthThatNoBlockHas_IsNone(int offset)
    {
        foreach (var length in (int[])[-1, SharedBlock.BytesMax + 1, int.MaxValue])
        {
            var bytes = new byte[SharedBlock.HeaderBytes];
            Block.WriteTo(bytes);
            BitConverter.TryWriteBytes(bytes.AsSpan(offset), length);
            BitConverter.TryWriteBytes(bytes.AsSpan(60), Crc32C.Of(bytes.AsSpan(..60)));
            Assert.False(SharedBlock.TryRead(bytes, Path, out _));
        }
    }

    [Fact]
    public void BlockHeader_OfAnotherVersion_IsRefused()
    {
        var bytes = new byte[SharedBlock.HeaderBytes];
        Block.WriteTo(bytes);
        bytes[4] = 2;
        BitConverter.TryWriteBytes(bytes.AsSpan(60), Crc32C.Of(bytes.AsSpan(..60)));
        Assert.Throws<FormatVersionException>(() => SharedBlock.TryRead(bytes, Path, out _));
    }

    [Fact]
    public void DirectoryEntry_Bytes_ArePinned()
    {
        var bytes = new byte[SharedBlock.EntryBytesOf(Entry)];
        Assert.Equal(bytes.Length, SharedBlock.WriteEntry(bytes, Entry));
        Assert.Equal(
            "0201000000000000" + "8877665544332211" + "0020000000000000" + "0403000000000000" + "0605000000000000" + "08070000" + "D4C3B2A1" + "0A00"
            + Convert.ToHexString("shards/1/x"u8), Convert.ToHexString(bytes));
        var read = Assert.Single(SharedBlock.ReadDirectory(bytes)!);
        Assert.Equal(Entry with { Name = default }, read with { Name = default });
        Assert.Equal(Entry.Name.ToArray(), read.Name.ToArray());
    }

    [Fact]
    public void Directory_CutAnywhereWithinAnEntry_IsNone()
    {
        var bytes = new byte[2 * SharedBlock.EntryBytesOf(Entry)];
        SharedBlock.WriteEntry(bytes.AsSpan(SharedBlock.WriteEntry(bytes, Entry)..), Entry);
        for (var length = 0; length <= bytes.Length; length++)
        {
            var read = SharedBlock.ReadDirectory(bytes.AsMemory(0, length));
            Assert.Equal(length % (bytes.Length / 2) == 0 ? 2 * length / bytes.Length : null, read?.Count);
        }
    }

    [Fact]
    public void RepeatedDirectories_Bytes_ArePinned()
    {
        byte[] first = [1, 2, 3], second = [4];
        var bytes = new byte[SharedBlock.RepeatedBytesOf(first) + SharedBlock.RepeatedBytesOf(second)];
        var end = SharedBlock.WriteRepeated(bytes, 0x0102, first);
        Assert.Equal(bytes.Length, end + SharedBlock.WriteRepeated(bytes.AsSpan(end), 0x0103, second));
        Assert.Equal("0201000000000000" + "03000000" + "010203" + "0301000000000000" + "01000000" + "04", Convert.ToHexString(bytes));
        Assert.Equal(["258 010203", "259 04"], SharedBlock.ReadRepeated(bytes).Select(static one => $"{one.Number} {Convert.ToHexString(one.Directory.Span)}"));
    }

    [Fact]
    public void FileHeader_Bytes_ArePinned()
    {
        using var disk = new SimulatedDisk();
        disk.CreateDirectories("/shared");
        using (var file = disk.Open(Path, new StorageFileOptions(StorageFileMode.CreateNew)))
            SharedFile.WriteHeader(file, 0x1122334455667788, 0x0102);
        var bytes = disk.ReadAll(Path);
        Assert.Equal(4096, bytes.Length);
        Assert.Equal(
            "4B564A31" + "01000000" + "8877665544332211" + "0201000000000000" + ChecksumOf(bytes.AsSpan(..24)), Convert.ToHexString(bytes.AsSpan(..28)));
        Assert.False(bytes.AsSpan(28..).ContainsAnyExcept((byte)0));
        Assert.True(SharedFile.TryReadHeader(bytes, Path, out var journal, out var neededFrom));
        Assert.Equal((0x1122334455667788ul, 0x0102ul), (journal, neededFrom));
        for (var bit = 0; bit < 8 * 28; bit++)
        {
            bytes[bit / 8] ^= (byte)(1 << (bit % 8));
            Assert.False(SharedFile.TryReadHeader(bytes, Path, out _, out _));
            bytes[bit / 8] ^= (byte)(1 << (bit % 8));
        }
    }

    [Fact]
    public void FileHeader_OfAnotherVersion_IsRefused()
    {
        var bytes = new byte[SharedFile.HeaderBytes];
        "KVJ1"u8.CopyTo(bytes);
        bytes[4] = 2;
        BitConverter.TryWriteBytes(bytes.AsSpan(24), Crc32C.Of(bytes.AsSpan(..24)));
        Assert.Throws<FormatVersionException>(() => SharedFile.TryReadHeader(bytes, Path, out _, out _));
    }

    private static string ChecksumOf(ReadOnlySpan<byte> bytes) => Convert.ToHexString(BitConverter.GetBytes(Crc32C.Of(bytes)));
}
