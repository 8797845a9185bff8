using System.Diagnostics;
using KvCluster.Processes;

namespace KvCluster.ClusterTests;

/// <summary>
/// A file system with injected faults for one node's data: the program <c>badfs</c> over a directory. Needs root, or a system that lets users mount
/// by FUSE.
/// </summary>
internal sealed class BadDisk : IAsyncDisposable
{
    private readonly TemporaryDirectory _folder = new();
    private Process? _process;

    private BadDisk()
    {
    }

    /// <summary>A directory for a node's data.</summary>
    public string Data => Path.Combine(Mount, "node");

    private string Mount => Path.Combine(_folder.Path, "mount");

    private string Source => Path.Combine(_folder.Path, "source");

    private string RuleFile => Path.Combine(_folder.Path, "rules");

    /// <summary>Mounts it without rules.</summary>
    public static async Task<BadDisk> CreateAsync()
    {
        var disk = new BadDisk();
        try
        {
            Directory.CreateDirectory(disk.Mount);
            Directory.CreateDirectory(disk.Source);
            var there = Path.Combine(disk.Mount, "there");
            await File.WriteAllTextAsync(Path.Combine(disk.Source, "there"), "");
            disk.Rule();
            disk._process = Process.Start(new ProcessStartInfo(Tools.Find("badfs")!, [disk.Source, disk.Mount, disk.RuleFile, "-f"]))!;
            await Eventually.TrueAsync(() => File.Exists(there) || disk._process.HasExited, "the file system is mounted");
            Assert.False(disk._process.HasExited, "badfs ended.");
            return disk;
        }
        catch
        {
            await disk.DisposeAsync();
            throw;
        }
    }

    /// <summary>The faults from now on, one rule each, in the format of badfs. None means no faults.</summary>
    public void Rule(params string[] rules)
    {
        // Replaced as a whole, so that it is never read half written. Its time reveals the change.
        var written = RuleFile + ".new";
        File.WriteAllLines(written, rules);
        File.Move(written, RuleFile, overwrite: true);
    }

    /// <summary>A path below <see cref="Data"/>, as rules name it.</summary>
    public static string InRules(string pathInData) => "node/" + pathInData;

    /// <summary>Drops a file from the page cache as far as nobody has it mapped. Its next reads go to the disk.</summary>
    public async Task ForgetAsync(string pathInData)
    {
        var (exitCode, _, error) = await Tools.RunAsync("dd", $"if={Path.Combine(Data, pathInData)}", "iflag=nocache", "count=0");
        Assert.True(exitCode == 0, error);
    }

    /// <summary>The same for a mapped file: it changes behind the mount, which the system notices when somebody opens it.</summary>
    public async Task ForgetMappedAsync(string pathInData)
    {
        File.SetLastWriteTimeUtc(Path.Combine(Source, "node", pathInData), DateTime.UtcNow.AddSeconds(-10));
        await using var opened = File.OpenRead(Path.Combine(Data, pathInData));
    }

    public async ValueTask DisposeAsync()
    {
        if (_process is not null)
        {
            await Tools.RunAsync("fusermount3", "-u", "-z", Mount);
            await _process.WaitForExitAsync();
            _process.Dispose();
        }

        _folder.Dispose();
    }
}
