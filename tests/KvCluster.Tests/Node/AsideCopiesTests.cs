using KvCluster.Node.Hosting;
using KvCluster.Processes;
using KvCluster.Storage.Control;
using KvCluster.Storage.Files;
using KvCluster.Tests.Cli;

namespace KvCluster.Tests.Node;

/// <summary>Copies that were set aside are deleted as a whole, and only those about which it was decided.</summary>
public sealed class AsideCopiesTests : IDisposable
{
    private readonly TemporaryDirectory _data = new();

    private string AsidePath => NodeDirectory.AsideIn(_data.Path);

    private AsideCopies Copies => new(LocalDisk.Instance, AsidePath);

    public void Dispose() => _data.Dispose();

    [Fact]
    public void List_ReturnsTheCopiesAndNothingElse()
    {
        Assert.Empty(Copies.List());
        Assert.Equal(0, Copies.Bytes());
        foreach (var name in (string[])["7", "7-later", "12", "notes", "7.held", "8.released"])
            Directory.CreateDirectory(Path.Combine(AsidePath, name));
        Assert.Equal([("12", 12u), ("7", 7u), ("7-later", 7u)], Copies.List().Select(static copy => (copy.Name, copy.Shard.Value)));
    }

    [Fact]
    public void TryRelease_OfTheReplicaThatWasDecidedAbout_DeletesItsCopyOnly()
    {
        Make("7", 42);
        Make("7-later", 43);
        Assert.True(Copies.TryRelease(Copies.List()[0], new(42)));
        Assert.Equal(["7-later"], NamesIn(AsidePath));
    }

    /// <summary>A later copy, perhaps with more in it, had taken the place of the one that nobody needed.</summary>
    [Fact]
    public void TryRelease_OfAnotherReplica_ChangesNothing()
    {
        Make("7", 42);
        var copy = Copies.List()[0];
        Assert.False(Copies.TryRelease(copy, new(41)));
        Assert.False(Copies.TryRelease(copy, ReplicaId.None));
        Assert.Equal(["7"], NamesIn(AsidePath));
        Assert.True(File.Exists(Path.Combine(copy.Path, "control")));
        Directory.Delete(copy.Path, recursive: true);
        Assert.False(Copies.TryRelease(copy, new(42)));
    }

    /// <summary>After a crash between two steps: what was not decided has its name again, and what was decided is deleted.</summary>
    [Fact]
    public void Tidy_AfterACrash_CompletesWhatWasDecided()
    {
        Make("7.held", 42);
        Make("8.released", 43);
        Make("9.held", 44);
        Make("9", 45);
        Copies.Tidy();
        Assert.Equal(["7", "9", "9.held"], NamesIn(AsidePath));
    }

    [ToolFact("bash")]
    public async Task Command_ListAndRemove_DeleteOnlyWithTheLossAccepted()
    {
        Make("7", 42);
        var (code, output, error) = await KvProcess.RunInShellAsync($"$NODE aside list '{_data.Path}'");
        Assert.Equal((2, ""), (code, output));
        Assert.Contains("is not the data directory of a node", error, StringComparison.Ordinal);
        await File.WriteAllTextAsync(Path.Combine(_data.Path, "format"), "kvcluster node 3");
        (code, output, error) = await KvProcess.RunInShellAsync($"$NODE aside list '{_data.Path}' && $NODE aside remove '{_data.Path}' 7");
        Assert.Equal((0, ""), (code, error));
        Assert.Contains("its newest record cannot be determined", output, StringComparison.Ordinal);
        Assert.Contains("Nothing was changed.", output, StringComparison.Ordinal);
        Assert.Equal(["7"], NamesIn(AsidePath));
        (_, _, error) = await KvProcess.RunInShellAsync($"$NODE aside remove '{_data.Path}' 8 --accept-loss");
        Assert.Contains("there is no copy '8'", error, StringComparison.Ordinal);
        (code, output, _) = await KvProcess.RunInShellAsync($"$NODE aside remove '{_data.Path}' 7 --accept-loss");
        Assert.Equal((0, true), (code, output.Contains("Deleted", StringComparison.Ordinal)));
        Assert.Empty(NamesIn(AsidePath));
    }

    private void Make(string name, ulong replica)
    {
        var path = Path.Combine(AsidePath, name);
        Directory.CreateDirectory(path);
        ControlFile.Create(LocalDisk.Instance, Path.Combine(path, "control"), new ControlState { ReplicaId = new(replica), Shard = new(7) }).Dispose();
    }

    private static IEnumerable<string?> NamesIn(string path) => Directory.GetDirectories(path).Select(Path.GetFileName).Order(StringComparer.Ordinal);
}
