using KvCluster.Local;

namespace KvCluster.Tests.Cli;

/// <summary>The logs of `kv-local`. After <c>truncate -s 0</c> the next line stood behind as many zero bytes as there had been text.</summary>
public sealed class LogLinesTests : IDisposable
{
    private readonly string _path = Path.GetTempFileName();

    public void Dispose() => File.Delete(_path);

    [Fact]
    public void Add_AfterTheFileWasShortened_WritesAtItsEnd()
    {
        File.WriteAllText(_path, "of the run before");
        using var log = new LogLines(_path);
        log.Add("one");
        log.Add("two \u00e9");
        Assert.Equal("one\ntwo \u00e9\n", File.ReadAllText(_path));
        using (var file = new FileStream(_path, FileMode.Open, FileAccess.Write, FileShare.ReadWrite))
            file.SetLength(0);
        log.Add("three");
        using (var file = new FileStream(_path, FileMode.Append, FileAccess.Write, FileShare.ReadWrite))
            file.Write("by another program\n"u8);
        log.Add("four");
        Assert.Equal("three\nby another program\nfour\n", File.ReadAllText(_path));
    }

    /// <summary>The launcher ended with its cluster when it noted on a full disk that a program had ended.</summary>
    [Fact]
    public void Add_OnAFullDisk_LosesTheLineAndNothingElse()
    {
        if (!File.Exists("/dev/full"))
            return;
        File.Delete(_path);
        File.CreateSymbolicLink(_path, "/dev/full");
        using var log = new LogLines(_path);
        Assert.Null(Record.Exception(() => log.Add("one")));
        Assert.Null(Record.Exception(() => log.Add("two")));
    }
}
