using KvCluster.Processes;

namespace KvCluster.ClusterTests;

/// <summary>
/// Programs in a group with limited memory, as in a container. A node with its defaults in 320 MiB was ended by the kernel when it got work; now it says at
/// once what it needs.
/// </summary>
public sealed class MemoryLimitTests
{
    private const int Usage = 2;
    private const string JoinThenRun = "echo $$ > \"$0\" && exec \"$@\"";

    [LimitedMemoryTheory]
    [InlineData("kv-node", 320, "320 MiB, and it needs 384")]
    [InlineData("kv-router", 160, "160 MiB, and it needs 192")]
    public async Task Start_BelowWhatItNeeds_IsRefusedWithTheNumber(string program, int mebibytes, string expected)
    {
        using var folder = new TemporaryDirectory();
        using var limit = MemoryLimit.TryCreate((long)mebibytes << 20, out var reason);
        Assert.True(limit is not null, reason);
        string[] arguments = program == "kv-node"
            ? ["run", "--node", "1", "--data", Path.Combine(folder.Path, "data"), "--listen", "http://127.0.0.1:7401", "--coordinator", "etcd=http://127.0.0.1:1"]
            : ["run", "--listen", "http://127.0.0.1:7400", "--nodes", "http://127.0.0.1:1"];
        var (exitCode, output, error) = await Tools.RunAsync("/bin/sh", ["-c", JoinThenRun, limit.Processes, Tools.Built(program), .. arguments]);
        Assert.True(exitCode == Usage && error.Contains(expected, StringComparison.Ordinal), $"{exitCode}: {output} {error}");
        Assert.Empty(Directory.EnumerateFileSystemEntries(folder.Path));
    }
}

/// <summary>A test that makes a group with limited memory. Where that is not possible, it is skipped with the reason.</summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class LimitedMemoryTheoryAttribute : TheoryAttribute
{
    public LimitedMemoryTheoryAttribute()
    {
        using var limit = MemoryLimit.TryCreate(1L << 30, out var reason);
        if (limit is null)
            Skip = reason;
    }
}
