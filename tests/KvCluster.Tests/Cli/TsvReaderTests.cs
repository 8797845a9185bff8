using System.IO.Compression;
using System.Text;
using KvCluster.Cli;
using KvCluster.Cli.Files;

namespace KvCluster.Tests.Cli;

public sealed class TsvReaderTests : IDisposable
{
    private const int KeyBytesMax = 2048;

    private readonly string _path = Path.GetTempFileName();

    public void Dispose() => File.Delete(_path);

    [Theory]
    [InlineData("a\t1\nb\t2\n")]
    [InlineData("a\t1\nb\t2")]
    public async Task Read_OfAFile_ReturnsRecordsWithTheirLines(string text)
    {
        File.WriteAllText(_path, text);
        Assert.Equal([(1, "a", "1"), (2, "b", "2")], await ReadAllAsync());
    }

    [Fact]
    public async Task Read_OfTabsAndCarriageReturnsInAValue_KeepsThem()
    {
        File.WriteAllText(_path, "a\t1\t\r2\n\u00e9\t\n");
        Assert.Equal([(1, "a", "1\t\r2"), (2, "\u00e9", "")], await ReadAllAsync());
    }

    /// <summary>They became part of the first key and of all values without a word.</summary>
    [Fact]
    public async Task Read_OfAByteOrderMarkOrCarriageReturnsAtTheEnds_IsRefused_UnlessTheCallerSaysWhatTheyAre()
    {
        File.WriteAllText(_path, "\uFEFFa\t1\r\nb\t2\r\n\uFEFFc\t\r");
        Assert.Equal([(1, "a", "1"), (2, "b", "2"), (3, "\uFEFFc", "")], await ReadAllAsync(TsvText.CrLf));
        Assert.Equal([(1, "\uFEFFa", "1\r"), (2, "b", "2\r"), (3, "\uFEFFc", "\r")], await ReadAllAsync(TsvText.Raw));
        using (var reader = TsvReader.Open(_path))
            Assert.Contains("line 1 begins with a byte order mark. Use --crlf", (await FailureOfAsync(reader)).Message, StringComparison.Ordinal);
        File.WriteAllText(_path, "a\t1\nb\t2\r\n");
        using (var reader = TsvReader.Open(_path))
        {
            Assert.NotNull(await reader.ReadAsync(default));
            Assert.Contains("line 2 ends with a carriage return. Use --crlf", (await FailureOfAsync(reader)).Message, StringComparison.Ordinal);
        }
    }

    [Fact]
    public async Task Read_OfAnEmptyFile_ReturnsNothing() => Assert.Empty(await ReadAllAsync());

    [Fact]
    public async Task Read_OfAGzipFile_UnpacksItWhateverItsName()
    {
        using (var packed = new GZipStream(File.Create(_path), CompressionLevel.Fastest))
            packed.Write("a\t1\nb\t2\n"u8);
        Assert.Equal([(1, "a", "1"), (2, "b", "2")], await ReadAllAsync());
    }

    /// <summary>Lines of every length around the size of the chunks in which a file is read.</summary>
    [Fact]
    public async Task Read_OfLinesAcrossChunks_LosesNoByte()
    {
        var random = new Random(11);
        var expected = Enumerable.Range(0, 4000).Select(i => ((long)(i + 1), $"key/{i}", new string((char)('a' + (i % 26)), random.Next(2000)))).ToList();
        expected.Add((4001, "large", new string('x', 3 << 20)));
        expected.Add((4002, "last", "end"));
        File.WriteAllLines(_path, expected.Select(record => $"{record.Item2}\t{record.Item3}"));
        Assert.Equal(expected, await ReadAllAsync());
    }

    [Theory]
    [InlineData("no tab", "line 3 has no tab")]
    [InlineData("", "line 3 has no tab")]
    [InlineData("\tvalue", "line 3 has an empty key")]
    public async Task Read_OfAMalformedLine_NamesItAfterReturningEarlierRecords(string line, string expected)
    {
        File.WriteAllText(_path, $"a\t1\nb\t2\n{line}\nc\t3\n");
        using var reader = TsvReader.Open(_path);
        Assert.Equal(1, (await reader.ReadAsync(default))?.Line);
        Assert.Equal(2, (await reader.ReadAsync(default))?.Line);
        var failure = await FailureOfAsync(reader);
        Assert.Equal(ExitCodes.Usage, failure.ExitCode);
        Assert.Contains(expected, failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task Read_OfAKeyOrValueOverTheLimit_NamesItsLine()
    {
        File.WriteAllText(_path, $"{new string('k', KeyBytesMax)}\t1\n{new string('k', KeyBytesMax + 1)}\t1\n");
        using (var reader = TsvReader.Open(_path))
        {
            Assert.NotNull(await reader.ReadAsync(default));
            Assert.Contains("line 2 has a key of 2049 bytes", (await FailureOfAsync(reader)).Message, StringComparison.Ordinal);
        }

        File.WriteAllText(_path, $"a\t{new string('v', (8 << 20) + 1)}\n");
        using (var reader = TsvReader.Open(_path))
            Assert.Contains("line 1 has a value of 8388609 bytes", (await FailureOfAsync(reader)).Message, StringComparison.Ordinal);

        // A line without an end is refused long before it fills the memory.
        File.WriteAllText(_path, $"a\t{new string('v', 40 << 20)}");
        using (var reader = TsvReader.Open(_path))
            Assert.Contains("line 1 is longer than", (await FailureOfAsync(reader)).Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task Skip_ThenRead_KeepsLineNumbers()
    {
        File.WriteAllText(_path, "not a record\nb\t2\nc\t3\n");
        using var reader = TsvReader.Open(_path);
        await reader.SkipAsync(2, default);
        var record = Assert.NotNull(await reader.ReadAsync(default));
        Assert.Equal((3, "c"), (record.Line, Encoding.UTF8.GetString(record.Key.Span)));
    }

    [Fact]
    public void Open_OfAMissingFile_IsAUsageError() =>
        Assert.Equal(ExitCodes.Usage, Assert.Throws<CliException>(() => TsvReader.Open(Path.Combine(_path, "absent"))).ExitCode);

    private static async Task<CliException> FailureOfAsync(TsvReader reader) =>
        await Assert.ThrowsAsync<CliException>(async () => await reader.ReadAsync(default));

    private async Task<List<(long, string, string)>> ReadAllAsync(TsvText text = TsvText.Plain)
    {
        using var reader = TsvReader.Open(_path, text);
        var records = new List<TsvRecord>();
        while (await reader.ReadAsync(default) is { } record)
            records.Add(record);
        // Decode only now, because later chunks must not overwrite earlier records.
        return records.ConvertAll(record => (record.Line, Encoding.UTF8.GetString(record.Key.Span), Encoding.UTF8.GetString(record.Value.Span)));
    }
}
