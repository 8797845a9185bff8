using System.Diagnostics;
using KvCluster.Processes;

namespace KvCluster.ClusterTests;

/// <summary>A file system for one node's data that errs by rules: the program <c>badfs</c> over a folder. Needs root, or a system that lets users mount by FUSE.</summary>
internal sealed class BadDisk : IAsyncDisposable
{
    private readonly TemporaryDirectory _folder = new();
    private Process? _process;

    private BadDisk()
    {
    }

    /// <summary>Where a node's data can lie.</summary>
    public string Data => Path.Combine(Mount, "node");

    private string Mount => Path.Combine(_folder.Path, "mount");

    private string Source => Path.Combine(_folder.Path, "source");

    private string RuleFile => Path.Combine(_folder.Path, "rules");

    /// <summary>Mounts it, without rules.</summary>
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

    /// <summary>How it errs from now on, one rule each, as badfs reads them; none: not at all.</summary>
    public void Rule(params string[] rules)
    {
        // By another file, so that it is never read half written; its time tells that it is another one.
        var written = RuleFile + ".new";
        File.WriteAllLines(written, rules);
        File.Move(written, RuleFile, overwrite: true);
    }

    /// <summary>A path below <see cref="Data"/> as rules name it.</summary>
    public static string InRules(string pathInData) => "node/" + pathInData;

    /// <summary>Has the system forget what it keeps of a file, as far as nobody has it mapped: its next reads go to the disk.</summary>
    public async Task ForgetAsync(string pathInData)
    {
        var (exitCode, _, error) = await Tools.RunAsync("dd", $"if={Path.Combine(Data, pathInData)}", "iflag=nocache", "count=0");
        Assert.True(exitCode == 0, error);
    }

    /// <summary>The same of a file that is mapped: the file has changed behind the mount, which the system learns as somebody opens it.</summary>
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
