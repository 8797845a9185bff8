using System.IO.Compression;
using System.Text;
using KvCluster.Cli;
using KvCluster.Cli.Files;
using Xunit.Abstractions;

namespace KvCluster.Tests.Cli;

/// <summary>A compressed file is accepted as complete only if it is. Restoring half of a backup without an error is the worst outcome of a load.</summary>
public sealed class GzipFileTests(ITestOutputHelper output) : IDisposable
{
    private const int Records = 5_000;
    private const int TrailerBytes = 8;

    private readonly string _path = Path.Combine(Path.GetTempPath(), $"kv-{Guid.NewGuid():N}.tsv.gz");

    public void Dispose() => File.Delete(_path);

    /// <summary>Every length near both ends, where header and trailer are, and some in between.</summary>
    [Fact]
    public async Task Read_OfATruncatedFile_FailsAndReturnsNoPartialLine()
    {
        var whole = Packed(Text(0, Records));
        var lengths = Enumerable.Range(0, 40).Concat(Enumerable.Range(whole.Length - 40, 40)).Concat(
            Enumerable.Range(1, 40).Select(part => whole.Length * part / 41));
        foreach (var length in lengths)
        {
            await File.WriteAllBytesAsync(_path, whole[..length]);
            Assert.Contains("is truncated", await ReadUntilFailureAsync(), StringComparison.Ordinal);
        }
    }

    [Fact]
    public async Task Read_OfSeveralMembers_ReturnsAllOfThem()
    {
        byte[] members =
            [.. Packed(Text(0, 2_000)), .. Packed(""), .. Packed(""), .. Packed(Text(2_000, 1)), .. Packed(Text(2_001, Records - 2_001)), .. Packed("")];
        await File.WriteAllBytesAsync(_path, members);
        Assert.Equal(Records, await ReadWholeAsync());
    }

    [Fact]
    public async Task Read_OfATruncatedSecondMember_Fails()
    {
        byte[] first = Packed(Text(0, 100));
        byte[] both = [.. first, .. Packed(Text(100, Records - 100))];
        foreach (var length in Enumerable.Range(first.Length + 1, 30).Concat(Enumerable.Range(both.Length - 30, 30)))
        {
            await File.WriteAllBytesAsync(_path, both[..length]);
            Assert.Contains("is truncated", await ReadUntilFailureAsync(), StringComparison.Ordinal);
        }
    }

    [Theory]
    [InlineData("x")]
    [InlineData("key\tvalue\n")]
    [InlineData("\u001f")]
    [InlineData("\0")]
    public async Task Read_OfAFileWithTrailingBytes_Fails(string behind)
    {
        await File.WriteAllBytesAsync(_path, [.. Packed(Text(0, Records)), .. Encoding.Latin1.GetBytes(behind)]);
        await ReadUntilFailureAsync();
    }

    /// <summary>The checksum covers bytes that decompress without an error, and the trailer itself.</summary>
    [Fact]
    public async Task Read_OfAFileWithAFlippedBit_Fails()
    {
        var random = Seeds.Next(output);
        // In noise most flipped bits decode to other noise. Only the checksum detects them.
        var noise = new byte[20_000];
        random.NextBytes(noise);
        var whole = Packed($"a\t{Convert.ToBase64String(noise)}\nb\t1\n");
        for (var round = 0; round < 100; round++)
        {
            // The last bytes of the compressed data have bits without a meaning, which may have any value.
            var place = round < TrailerBytes ? whole.Length - 1 - round : random.Next(whole.Length / 10, whole.Length - TrailerBytes - 16);
            var damaged = whole.ToArray();
            damaged[place] ^= (byte)(1 << random.Next(8));
            await File.WriteAllBytesAsync(_path, damaged);
            using var reader = RecordReader.Open(_path);
            var failure = await Record.ExceptionAsync(async () =>
            {
                while (await reader.ReadAsync(default) is not null)
                {
                }
            });
            Assert.True(failure is CliException { ExitCode: ExitCodes.Usage }, $"byte {place}: {failure}");
        }
    }

    [Fact]
    public async Task Read_OfAHeaderWithAllItsParts_SkipsThem()
    {
        var plain = Packed("a\t1\n");
        // The last two bytes are the header's own checksum.
        byte[] parts = [0x1F, 0x8B, 8, 2 | 4 | 8 | 16, 0, 0, 0, 0, 0, 3, 3, 0, 1, 2, 3, .. "name\0"u8, .. "comment\0"u8, 0x34, 0x36, .. plain[10..]];
        await File.WriteAllBytesAsync(_path, parts);
        using var reader = RecordReader.Open(_path);
        Assert.Equal(1, (await reader.ReadAsync(default))?.Line);
        Assert.Null(await reader.ReadAsync(default));
    }

    [Fact]
    public async Task Read_OfAPlainFileNamedGz_ReportsThatItIsNoGzip()
    {
        await File.WriteAllTextAsync(_path, "a\t1\n");
        Assert.Contains("is not a gzip file", await ReadUntilFailureAsync(), StringComparison.Ordinal);
    }

    private static string Text(int first, int count) =>
        string.Concat(Enumerable.Range(first, count).Select(number => $"key/{number}\tvalue {number * 7919L % 10_007}\n"));

    private static byte[] Packed(string text)
    {
        var bytes = new MemoryStream();
        using (var packed = new GZipStream(bytes, CompressionLevel.Optimal))
        {
            packed.Write(Encoding.UTF8.GetBytes(text));
            // Always write something: a stream that nobody wrote to has no gzip member.
            packed.Flush();
        }

        return bytes.ToArray();
    }

    private async Task<long> ReadWholeAsync()
    {
        using var reader = RecordReader.Open(_path);
        while (await reader.ReadAsync(default) is { } record)
            AssertIsWhole(record);
        return reader.Lines;
    }

    private async Task<string> ReadUntilFailureAsync()
    {
        var failure = await Assert.ThrowsAsync<CliException>(ReadWholeAsync);
        Assert.Equal(ExitCodes.Usage, failure.ExitCode);
        Assert.Contains(_path, failure.Message, StringComparison.Ordinal);
        return failure.Message;
    }

    private static void AssertIsWhole(FileRecord record) => Assert.Equal(
        Text((int)record.Line - 1, 1), $"{Encoding.UTF8.GetString(record.Key.Span)}\t{Encoding.UTF8.GetString(record.Value.Span)}\n");
}
