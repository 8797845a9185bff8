using KvCluster.Cli;
using KvCluster.Cli.Files;

namespace KvCluster.Tests.Cli;

public sealed class DifferencesTests
{
    private readonly Differences _differences = new();

    [Fact]
    public void Add_OfEqualLines_FindsNothing()
    {
        Add(1, "a", Comparison.Equal);
        Assert.Equal(0, _differences.Count);
    }

    /// <summary>A file that names a key twice is loaded with the last value. The first line then differs from the cluster, which is correct.</summary>
    [Fact]
    public void Add_OfTheSameKeyTwice_CountsTheLastLine()
    {
        Add(1, "a", Comparison.Different);
        Add(2, "b", Comparison.Different);
        Add(3, "a", Comparison.Equal);
        Assert.Equal(["b"], _differences.First(10).Select(one => System.Text.Encoding.UTF8.GetString(one.Record.Key.Span)));
        Add(4, "b", Comparison.Missing);
        Assert.Equal((0, 1), (_differences.CountOf(Comparison.Different), _differences.CountOf(Comparison.Missing)));
    }

    [Fact]
    public void First_OfMany_IsOrderedByLine()
    {
        Add(7, "z", Comparison.Missing);
        Add(9, "a", Comparison.Missing);
        Add(8, "b", Comparison.Missing);
        Assert.Equal([7L, 8L], _differences.First(2).Select(one => one.Record.Line));
    }

    private void Add(long line, string key, Comparison comparison) =>
        _differences.Add(new ComparedRecord(new FileRecord(line, Text.ToBytes(key), default), comparison));
}
