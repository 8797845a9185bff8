using System.IO.Compression;
using System.Text;
using KvCluster.Cli;
using KvCluster.Cli.Files;

namespace KvCluster.Tests.Cli;

public sealed class RecordReaderTests : IDisposable
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
        using (var reader = RecordReader.Open(_path))
            Assert.Contains("line 1 begins with a byte order mark. Use --crlf", (await FailureOfAsync(reader)).Message, StringComparison.Ordinal);
        File.WriteAllText(_path, "a\t1\nb\t2\r\n");
        using (var reader = RecordReader.Open(_path))
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
        using var reader = RecordReader.Open(_path);
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
        using (var reader = RecordReader.Open(_path))
        {
            Assert.NotNull(await reader.ReadAsync(default));
            Assert.Contains("line 2 has a key of 2049 bytes", (await FailureOfAsync(reader)).Message, StringComparison.Ordinal);
        }

        File.WriteAllText(_path, $"a\t{new string('v', (8 << 20) + 1)}\n");
        using (var reader = RecordReader.Open(_path))
            Assert.Contains("line 1 has a value of 8388609 bytes", (await FailureOfAsync(reader)).Message, StringComparison.Ordinal);

        // A line without an end is refused long before it fills the memory.
        File.WriteAllText(_path, $"a\t{new string('v', 40 << 20)}");
        using (var reader = RecordReader.Open(_path))
            Assert.Contains("line 1 is longer than", (await FailureOfAsync(reader)).Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task Skip_ThenRead_KeepsLineNumbers()
    {
        File.WriteAllText(_path, "not a record\nb\t2\nc\t3\n");
        using var reader = RecordReader.Open(_path);
        await reader.SkipAsync(2, default);
        var record = Assert.NotNull(await reader.ReadAsync(default));
        Assert.Equal((3, "c"), (record.Line, Encoding.UTF8.GetString(record.Key.Span)));
    }

    [Fact]
    public void Open_OfAMissingFile_IsAUsageError() =>
        Assert.Equal(ExitCodes.Usage, Assert.Throws<CliException>(() => RecordReader.Open(Path.Combine(_path, "absent"))).ExitCode);

    [Theory]
    [InlineData("#kvcluster-export-1\na\t1\t\nb\t2\t1500\n", false)]
    [InlineData("#kvcluster-export-1\r\na\t1\t\r\nb\t2\t1500\r\n", true)]
    [InlineData("{\"key\":\"a\",\"value\":\"1\",\"etag\":\"e\"}\n{\"key_base64\":\"Yg==\",\"value\":null,\"value_base64\":\"Mg==\",\"ttl_ms\":1500}", false)]
    public async Task Read_OfAnExport_ReturnsKeysValuesAndWhatTheyHaveLeft(string text, bool isOfWindows)
    {
        File.WriteAllText(_path, text);
        using var reader = RecordReader.Open(_path, isOfWindows ? TsvText.CrLf : TsvText.Plain);
        var (one, two) = (Assert.NotNull(await reader.ReadAsync(default)), Assert.NotNull(await reader.ReadAsync(default)));
        Assert.Null(await reader.ReadAsync(default));
        Assert.Equal(("a", "1", null), (Encoding.UTF8.GetString(one.Key.Span), Encoding.UTF8.GetString(one.Value.Span), one.Left));
        Assert.Equal(("b", "2", TimeSpan.FromSeconds(1.5)), (Encoding.UTF8.GetString(two.Key.Span), Encoding.UTF8.GetString(two.Value.Span), two.Left));
        Assert.Equal((2, true, reader.Lines), (reader.Records, reader.MayHaveLives, two.Line));
    }

    /// <summary>A load that goes on behind the first line knows the form of the file, too.</summary>
    [Fact]
    public async Task Skip_ThenRead_OfAnExport_KnowsItsForm()
    {
        File.WriteAllText(_path, "#kvcluster-export-1\na\t1\t\n$'b\\t'\t$'\\xff\\'\\\\'\t\n");
        using var reader = RecordReader.Open(_path);
        await reader.SkipAsync(2, default);
        var record = Assert.NotNull(await reader.ReadAsync(default));
        Assert.Equal((3, "b\t"), (record.Line, Encoding.UTF8.GetString(record.Key.Span)));
        Assert.Equal("FF275C", Convert.ToHexString(record.Value.Span));
    }

    [Theory]
    [InlineData("#kvcluster-export-1\na\t1\n", "line 2 does not have the three columns of an export")]
    [InlineData("#kvcluster-export-1\na\t1\t2\t\n", "line 2 does not have the three columns of an export")]
    [InlineData("#kvcluster-export-1\na\t1\tsoon\n", "line 2 has a time left that is not a number of milliseconds")]
    [InlineData("#kvcluster-export-1\na\t$'1\t\n", "line 2 has a key or a value that is not quoted as an export quotes it")]
    [InlineData("#kvcluster-export-1\n\t1\t\n", "line 2 has an empty key")]
    [InlineData("{\"key\":\"a\"}\n", "line 1 has neither value nor value_base64")]
    [InlineData("{\"key\":\"a\",\"value\":\"\",\"ttl_ms\":\"1\"}\n", "line 1 has a ttl_ms that is not a number")]
    [InlineData("{\"key\":\n", "line 1 is not an entry in JSON")]
    [InlineData("{}\n", "line 1 has neither key nor key_base64")]
    public async Task Read_OfABrokenExport_NamesTheLine(string text, string expected)
    {
        File.WriteAllText(_path, text);
        using var reader = RecordReader.Open(_path);
        Assert.Contains(expected, (await FailureOfAsync(reader)).Message, StringComparison.Ordinal);
    }

    private static async Task<CliException> FailureOfAsync(RecordReader reader) =>
        await Assert.ThrowsAsync<CliException>(async () => await reader.ReadAsync(default));

    private async Task<List<(long, string, string)>> ReadAllAsync(TsvText text = TsvText.Plain)
    {
        using var reader = RecordReader.Open(_path, text);
        var records = new List<FileRecord>();
        while (await reader.ReadAsync(default) is { } record)
            records.Add(record);
        // Decode only now, because later chunks must not overwrite earlier records.
        return records.ConvertAll(record => (record.Line, Encoding.UTF8.GetString(record.Key.Span), Encoding.UTF8.GetString(record.Value.Span)));
    }
}
