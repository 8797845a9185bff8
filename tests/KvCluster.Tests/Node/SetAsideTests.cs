using KvCluster.Node.Hosting;
using KvCluster.Storage.Control;
using KvCluster.Storage.Files;

namespace KvCluster.Tests.Node;

/// <summary>Of the directories of replicas taken out of service, the one with the most data is kept.</summary>
public sealed class SetAsideTests : IDisposable
{
    private const uint Shard = 7;
    private readonly TemporaryDirectory _temporary = new();

    public void Dispose() => _temporary.Dispose();

    [Fact]
    public async Task SetAside_CopyWithLessData_KeepsTheBetterOne()
    {
        // A lost replica was set aside. The replica that was being rebuilt in its place was lost, too, and its part of the shard replaced the complete copy.
        await using var directory = NodeDirectory.Open(Path.Combine(_temporary.Path, "data"), LocalDisk.Instance);
        SetAside(directory, committed: 100);
        SetAside(directory, committed: 3);
        Assert.Equal((100, 3), (CommittedIn(directory, "7"), CommittedIn(directory, "7-later")));
        SetAside(directory, committed: 5);
        Assert.Equal((100, 5), (CommittedIn(directory, "7"), CommittedIn(directory, "7-later")));
        SetAside(directory, committed: 200);
        Assert.Equal(200, CommittedIn(directory, "7"));
    }

    [Fact]
    public async Task SetAside_UnreadableCopy_KeepsTheReadableOne()
    {
        await using var directory = NodeDirectory.Open(Path.Combine(_temporary.Path, "data"), LocalDisk.Instance);
        SetAside(directory, committed: 100);
        Directory.CreateDirectory(directory.ShardPath(new(Shard)));
        directory.SetAside(new(Shard));
        SetAside(directory, committed: 1_000, quarantined: true);
        Assert.Equal(100, CommittedIn(directory, "7"));
    }

    private static void SetAside(NodeDirectory directory, ulong committed, bool quarantined = false)
    {
        var path = directory.ShardPath(new(Shard));
        Directory.CreateDirectory(path);
        ControlFile.Create(
            LocalDisk.Instance, Path.Combine(path, "control"),
            new ControlState { ReplicaId = new(1), Shard = new(Shard), Committed = new Etag(0, committed) }).Dispose();
        if (quarantined)
            File.WriteAllText(Path.Combine(path, "quarantined"), "its tree is wrong");
        directory.SetAside(new(Shard));
        Assert.False(Directory.Exists(path));
    }

    private static int CommittedIn(NodeDirectory directory, string name)
    {
        using var control = ControlFile.TryOpen(LocalDisk.Instance, Path.Combine(directory.AsidePath, name, "control"));
        return (int)control!.State.Committed.Change;
    }
}
