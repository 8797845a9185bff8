using System.Text;
using KvCluster.Storage.Encoding;
using KvCluster.Tests.Fuzzing;
using static KvCluster.Tests.Storage.Journal.SystemLz4;

namespace KvCluster.Tests.Storage.Journal;

/// <summary>Blocks of LZ4: examples of the format, the same blocks as liblz4, and blocks that are none.</summary>
public sealed class Lz4Tests
{
    // What liblz4 1.9.4 made of the text of KeptText. Journals have such blocks from the time when the system's library compressed them.
    private const string KeptBlock = "FE126F72646572732F323032362F31312F303030303D7468726565206170706C65733B21001F3121000D1F3221000D1F3321000D1F3421000D1F35"
        + "21000D1F3621000D1F3721000D1F3821000D1F3921000C1F314A010D1F314A010D1F314A010D1F314A010D1F314A010D1F314A010D1F314A010D1F314A010D1F314A010D1F314A010D"
        + "1F324A010D1F324A010D1F324A010D1F324A010D1F324A010D1F324A010D1F324A010D1F324A010D1F324A010D1F324A010D1F334A010D1F334A010D1F334A010D1F334A010D1F334A"
        + "010D1F334A010D1F334A010D1F334A010D1F334A010D16334A0150706C65733B";

    private static string KeptText => string.Concat(Enumerable.Range(0, 40).Select(static at => $"orders/2026/11/{at:0000}=three apples;"));

    // The examples follow lz4_Block_format.md.
    [Theory]
    [InlineData("00", "")]
    [InlineData("50" + "6162636465", "6162636465")]
    [InlineData("1A" + "61" + "0100" + "50" + "6161616161", "6161616161616161616161616161616161616161")]
    [InlineData("33" + "616263" + "0300" + "50" + "6161616161", "616263" + "61626361626361" + "6161616161")]
    public void Decompress_Block_GivesItsBytes(string block, string bytes)
    {
        var result = new byte[bytes.Length / 2];
        Assert.True(Lz4.TryDecompress(Convert.FromHexString(block), result));
        Assert.Equal(bytes, Convert.ToHexString(result));
    }

    [Fact]
    public void Decompress_LongLengths_AreRead()
    {
        var literals = Enumerable.Range(0, 273).Select(static at => (byte)at).ToArray();
        // 273 = 15 + 255 + 3 literals, then 15 + 255 + 0 + 4 bytes from 2 before, then five literals.
        byte[] block = [0xFF, 0xFF, 3, .. literals, 2, 0, 0xFF, 0, 0x50, 1, 2, 3, 4, 5];
        var result = new byte[273 + 274 + 5];
        Assert.True(Lz4.TryDecompress(block, result));
        Assert.Equal([.. literals, .. Enumerable.Range(0, 274).Select(at => literals[271 + (at % 2)]), 1, 2, 3, 4, 5], result);
    }

    [Theory]
    [InlineData("", 0)]
    [InlineData("", 5)]
    [InlineData("00", 5)]
    [InlineData("50" + "6162636465", 0)]
    [InlineData("50" + "61626364", 5)]
    [InlineData("50" + "6162636465", 4)]
    [InlineData("50" + "6162636465", 6)]
    [InlineData("F0", 15)]
    [InlineData("F0FFFFFF", 1000)]
    [InlineData("1A" + "61" + "0200" + "50" + "6161616161", 20)]
    [InlineData("1A" + "61" + "01", 20)]
    [InlineData("1A" + "61" + "0100", 15)]
    [InlineData("1F" + "61" + "0100" + "FF", 400)]
    public void Decompress_NoBlockOfThisLength_IsRefused(string block, int length) =>
        Assert.False(Lz4.TryDecompress(Convert.FromHexString(block), new byte[length]));

    // The sum of these lengths has more than 32 bits.
    [Theory]
    [InlineData("F0")]
    [InlineData("1F" + "61" + "0100")]
    public void Decompress_LengthWithoutEnd_IsRefused(string begin)
    {
        var block = new byte[20 << 20];
        block.AsSpan().Fill(byte.MaxValue);
        Convert.FromHexString(begin).CopyTo(block, 0);
        Assert.False(Lz4.TryDecompress(block, new byte[20 << 20]));
    }

    // The decoder takes a match with the distance 0 from what was in the memory before, which may have been another caller's value.
    [Fact]
    public void Decompress_MatchWithoutDistance_GivesNothingOfWhatWasThereBefore()
    {
        var literals = Enumerable.Range(0, 288).Select(static at => (byte)at).ToArray();
        byte[] block = [0xFF, 0xFF, 18, .. literals, 0, 0, 0xFF, 0, 0x50, 1, 2, 3, 4, 5];
        var (first, second) = (new byte[288 + 274 + 5], new byte[288 + 274 + 5]);
        second.AsSpan().Fill(0xAA);
        Assert.Equal(Lz4.TryDecompress(block, first), Lz4.TryDecompress(block, second));
        Assert.Equal(first, second);
    }

    [Fact]
    public void Decompress_BlockOfLiblz4FromAnOldJournal_GivesItsBytes()
    {
        var text = Encoding.UTF8.GetBytes(KeptText);
        var result = new byte[text.Length];
        Assert.True(Lz4.TryDecompress(Convert.FromHexString(KeptBlock), result));
        Assert.Equal(text, result);
    }

    [SystemLz4Fact]
    public void Blocks_OfThisProgramAndOfLiblz4_AreReadByTheOther() => Seeds.Run(100, static random =>
    {
        var bytes = Repetitive(random, 1 + random.Next(200_000));
        Assert.True(SystemLz4.TryDecompress(Compressed(bytes), bytes.Length).AsSpan().SequenceEqual(bytes));
        var result = new byte[bytes.Length];
        Assert.True(Lz4.TryDecompress(SystemLz4.Compress(bytes), result));
        Assert.True(result.AsSpan().SequenceEqual(bytes));
    });

    [Fact]
    public void Compress_IntoLessThanItTakes_IsRefusedAndWritesNothingBehind()
    {
        using var source = new GuardedMemory(1 << 16);
        using var destination = new GuardedMemory(1 << 17);
        Seeds.Run(100, random =>
        {
            var bytes = Repetitive(random, 1 + random.Next(1 << 16));
            var from = source.Of(bytes.Length, atEnd: true);
            bytes.CopyTo(from);
            var needed = Compressed(bytes).Length;
            Assert.Equal(0, Lz4.Compress(from, destination.Of(random.Next(needed), atEnd: true)));
            Assert.Equal(needed, Lz4.Compress(from, destination.Of(needed + 64, atEnd: true)));
        });
    }

    // Random, truncated and changed blocks, and other lengths than theirs. A read or write outside of block and result ends the process.
    [Fact]
    public void Decompress_HostileBlock_TouchesNothingElseAndDependsOnNothingElse()
    {
        using var source = new GuardedMemory(1 << 18);
        using var destination = new GuardedMemory(1 << 17);
        Seeds.Run(40, random =>
        {
            var bytes = Repetitive(random, 1 + random.Next(random.Next(2) == 0 ? 100 : 1 << 16));
            var sound = Compressed(bytes);
            for (var attempt = 0; attempt < 50; attempt++)
            {
                var block = random.Next(8) switch
                {
                    0 => Mutation.RandomBytes(random, random.Next(2_000)),
                    1 => sound[..random.Next(sound.Length)],
                    _ => Mutation.Of(random, sound, keepsLength: false, hot: 40),
                };
                var length = random.Next(3) == 0 ? random.Next(2 * bytes.Length) : bytes.Length;
                var first = Decompressed(block, length, atEnd: true);
                random.NextBytes(destination.Of(1 << 17, atEnd: true));
                var second = Decompressed(block, length, atEnd: false);
                Assert.Equal(first is null, second is null);
                Assert.True(first.AsSpan().SequenceEqual(second));
            }
        });

        byte[]? Decompressed(byte[] block, int length, bool atEnd)
        {
            var from = source.Of(block.Length, atEnd);
            var to = destination.Of(length, atEnd);
            block.CopyTo(from);
            return Lz4.TryDecompress(from, to) ? to.ToArray() : null;
        }
    }

    private static byte[] Compressed(byte[] bytes)
    {
        // As much as a block can be longer than what it gives.
        var block = new byte[bytes.Length + (bytes.Length / 255) + 16];
        return block[..Lz4.Compress(bytes, block)];
    }

    /// <summary>Bytes of which a part repeats itself, and a part does not.</summary>
    internal static byte[] Repetitive(Random random, int length)
    {
        var bytes = new byte[length];
        var repeated = Mutation.RandomBytes(random, 1 + random.Next(300));
        for (var at = 0; at < length;)
        {
            var part = bytes.AsSpan(at, Math.Min(repeated.Length, length - at));
            if (random.Next(4) > 0)
                repeated.AsSpan(0, part.Length).CopyTo(part);
            else
                random.NextBytes(part);
            at += repeated.Length;
        }
        return bytes;
    }
}
