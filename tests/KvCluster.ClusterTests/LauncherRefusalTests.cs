using System.Net;
using System.Net.Sockets;
using KvCluster.Processes;

namespace KvCluster.ClusterTests;

/// <summary>Mistakes when a person starts a cluster. Each gives one clear line and its own exit code.</summary>
public sealed class LauncherRefusalTests
{
    private const int Usage = 2;
    private const int Unavailable = 3;
    private const int OtherFormat = 4;

    [Theory]
    [InlineData("--nodes", "0", "--nodes must be from 1 to 8")]
    [InlineData("--nodes", "three", "as a number in the allowed range")]
    [InlineData("--split-at", "b,a", "keys must be in ascending order")]
    [InlineData("--split-at", "a,,b", "a key is empty")]
    [InlineData("--shards", "65", "--shards must be from 1 to 64")]
    [InlineData("--colour", "red", "--colour")]
    public async Task Start_WithWrongOption_NamesItInOneLine(string option, string value, string expected)
    {
        using var folder = new TemporaryDirectory();
        var (exitCode, error) = await LauncherProcess.RunToEndAsync(folder.Path, FreePorts.Ten(), option, value);
        Assert.Equal(Usage, exitCode);
        AssertOneLine(expected, error);
        Assert.Empty(Directory.EnumerateFileSystemEntries(folder.Path));
    }

    [Fact]
    public async Task Start_WithAnEmptyDirectoryName_IsRefused()
    {
        var (exitCode, error) = await LauncherProcess.RunToEndAsync("", FreePorts.Ten());
        Assert.Equal(Usage, exitCode);
        AssertOneLine("--data requires the name of a directory", error);
    }

    [Theory]
    [InlineData(0, "the router")]
    [InlineData(2, "node 2")]
    [InlineData(14, "the console")]
    public async Task Start_WithAPortInUse_NamesThePortAndItsUse(int offset, string use)
    {
        using var folder = new TemporaryDirectory();
        var port = FreePorts.Ten();
        using var taken = new TcpListener(IPAddress.Loopback, port + offset);
        taken.Start();
        var (exitCode, error) = await LauncherProcess.RunToEndAsync(folder.Path, port);
        Assert.Equal(Unavailable, exitCode);
        AssertOneLine($"Port {port + offset} for {use}", error);
        Assert.False(File.Exists(Path.Combine(folder.Path, "local.json")), "a refused start must not record a cluster shape");
    }

    [Fact]
    [Trait("Turn", "1")]
    public async Task Start_InTheDirectoryOfARunningCluster_IsRefused()
    {
        using var folder = new TemporaryDirectory();
        await using var first = await LauncherProcess.StartAsync(folder.Path, FreePorts.Ten());
        var (exitCode, error) = await LauncherProcess.RunToEndAsync(folder.Path, FreePorts.Ten());
        Assert.Equal(Unavailable, exitCode);
        AssertOneLine("in use by another launcher", error);
    }

    [Fact]
    public async Task Start_InADirectoryOfAnotherFormatVersion_IsRefused()
    {
        using var folder = new TemporaryDirectory();
        await File.WriteAllTextAsync(Path.Combine(folder.Path, "local.json"), """{ "format": 7, "nodes": 3, "split_at": [] }""");
        var (exitCode, error) = await LauncherProcess.RunToEndAsync(folder.Path, FreePorts.Ten());
        Assert.Equal(OtherFormat, exitCode);
        AssertOneLine("format 7", error);
    }

    [Fact]
    public async Task Start_InADirectoryOfAnotherProgram_IsRefusedAndChangesNothing()
    {
        using var folder = new TemporaryDirectory();
        Directory.CreateDirectory(Path.Combine(folder.Path, "photographs"));
        var (exitCode, error) = await LauncherProcess.RunToEndAsync(folder.Path, FreePorts.Ten());
        Assert.Equal(OtherFormat, exitCode);
        AssertOneLine("choose another with --data", error);
        Assert.False(File.Exists(Path.Combine(folder.Path, "local.json")));
    }

    private static void AssertOneLine(string expected, string error)
    {
        Assert.Contains(expected, error, StringComparison.Ordinal);
        Assert.StartsWith("kv-local: ", error, StringComparison.Ordinal);
        Assert.DoesNotContain('\n', error);
    }
}
