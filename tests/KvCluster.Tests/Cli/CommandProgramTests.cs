using KvCluster.Local;

namespace KvCluster.Tests.Cli;

/// <summary>What `kv-local` tells of `kv`. A copy of its directory elsewhere named a path at which there was nothing.</summary>
public sealed class CommandProgramTests : IDisposable
{
    private static readonly string Name = OperatingSystem.IsWindows() ? "kv.exe" : "kv";

    private readonly TemporaryDirectory _directory = new();

    public void Dispose() => _directory.Dispose();

    [Fact]
    public void Find_WithoutKv_IsNone()
    {
        Assert.Null(CommandProgram.FindFrom(FolderOf("KvCluster.Local", "release")));
        Assert.Null(CommandProgram.FindFrom(Path.GetPathRoot(_directory.Path)!));
    }

    [Fact]
    public void Find_BuiltOrPublishedBeside_IsThat()
    {
        var local = FolderOf("KvCluster.Local", "release");
        var built = Path.Combine(FolderOf("KvCluster.Cli", "release"), Name);
        File.WriteAllText(built, "");
        Assert.Equal(built, CommandProgram.FindFrom(local + Path.DirectorySeparatorChar));
        File.WriteAllText(Path.Combine(local, "kv.dll"), "");
        Assert.Equal(Path.Combine(local, Name), CommandProgram.FindFrom(local));
    }

    private string FolderOf(params string[] names) => Directory.CreateDirectory(Path.Combine([_directory.Path, .. names])).FullName;
}
