using KvCluster.Disk;
using KvCluster.Internal.V1;
using KvCluster.Node.Hosting;
using KvCluster.Storage.Files;

namespace KvCluster.Tests.Node;

/// <summary>
/// A data directory on a disk that loses power or fails at each call of each change. Afterwards each change is made or not, and a replica's directory is in its
/// place, or, whole, among the retired ones. The lock is on the machine's own disk.
/// </summary>
public sealed class NodeDirectoryCrashTests : IDisposable
{
    /// <summary>Subsets of unsynced changes that are tried for each call, where there are several.</summary>
    private const int SubsetsTried = 6;

    private static readonly ShardId Lost = new(1), Retired = new(2), RetiredLater = new(3);

    private static readonly DirectoryStarts FirstStart = DirectoryStarts.None.Next(new NodeStarts(), process: 7);

    /// <summary>Each is made again by the next process if the one before could not complete it.</summary>
    private static readonly (string Name, Action<NodeDirectory> Make)[] Steps =
    [
        ("the claim", static directory => directory.Claim(new(1), "c", new Lineage(UInt128.MaxValue))),
        ("the first start", static directory => directory.CountStart(FirstStart)),
        ("the next start", static directory => directory.CountStart(FirstStart.Next(FirstStart.Put, process: 8))),
        ("the retirement of a replica", static directory => RetireIfThere(directory, Retired)),
        ("the deletion of a replica that was just created", static directory => directory.Delete(Lost)),
        ("the retirement of another replica", static directory => RetireIfThere(directory, RetiredLater)),
    ];

    private readonly TemporaryDirectory _directory = new();

    public static TheoryData<string> Modes => new(Enum.GetNames<UnsyncedWrites>());

    public static TheoryData<string> Faults => new((string[])
    [
        nameof(DiskFault.ErrorAfterwards),
        nameof(DiskFault.NoRoomAfterwards), nameof(DiskFault.Error), nameof(DiskFault.NoRoom), nameof(DiskFault.ShortWrite), nameof(DiskFault.SyncLosesData),
    ]);

    public void Dispose() => _directory.Dispose();

    // Whether all are lost or all arrive does not depend on a seed.
    private static int SubsetsOf(UnsyncedWrites unsynced) => unsynced is UnsyncedWrites.Dropped or UnsyncedWrites.Kept ? 1 : SubsetsTried;

    [Theory]
    [MemberData(nameof(Modes))]
    public async Task Crash_AtEveryCallOfEveryChange_LeavesTheStateBeforeItOrAfterIt(string mode)
    {
        using var filled = await FilledDiskAsync();
        var states = await StatesOfASoundRunAsync(filled);
        var unsynced = Enum.Parse<UnsyncedWrites>(mode);
        var calls = 0;
        for (var isReached = true; isReached; calls++)
        {
            for (var seed = 1; seed <= SubsetsOf(unsynced); seed++)
            {
                using var disk = filled.Copy();
                var chosen = calls + 1;
                var done = await MakeUntilItFailsAsync<SimulatedCrashException>(disk, () => disk.CrashAtCall = disk.Calls + chosen);
                isReached = disk.IsOff;
                disk.Restart(unsynced, seed);
                await CheckGoesOnAsync(disk, states, done, $"power lost at call {chosen}, in {NameOf(done)}, seed {seed}");
            }
        }

        Assert.True(calls > 3 * Steps.Length, $"The changes made only {calls} calls.");
    }

    /// <summary>
    /// Whatever the failed call has done, the next process finds a sound directory, and what it does and finds done stays through a power loss.
    /// </summary>
    [Theory]
    [MemberData(nameof(Faults))]
    public async Task AnyCall_FailsAndTheProcessEnds_TheNextOneGoesOn(string name)
    {
        using var filled = await FilledDiskAsync();
        var states = await StatesOfASoundRunAsync(filled);
        var fault = Enum.Parse<DiskFault>(name);
        var happened = true;
        for (var chosen = 1; happened; chosen++)
        {
            using var disk = filled.Copy();
            var (calls, failing) = (0, chosen);
            var done = await MakeUntilItFailsAsync<StorageIoException>(
                disk, () => disk.Fault = call => call.Changes && ++calls == failing ? fault : DiskFault.None);
            disk.Fault = null;
            happened = done < Steps.Length;
            await CheckGoesOnAsync(disk, states, done, $"{fault} at call {chosen}, in {NameOf(done)}");
        }
    }

    [Theory]
    [MemberData(nameof(Modes))]
    public async Task Crash_AtEveryCallOfTheFirstOpen_LeavesADirectoryThatOpens(string mode)
    {
        var unsynced = Enum.Parse<UnsyncedWrites>(mode);
        var isReached = true;
        for (var calls = 0; isReached; calls++)
        {
            for (var seed = 1; seed <= SubsetsOf(unsynced); seed++)
            {
                using var disk = EmptyDisk();
                disk.CrashAtCall = disk.Calls + calls + 1;
                try
                {
                    await using var first = Open(disk);
                }
                catch (DirectoryNotUsableException)
                {
                    Assert.True(disk.IsOff);
                }

                isReached = disk.IsOff;
                disk.Restart(unsynced, seed);
                await using (var next = Open(disk))
                    Steps[0].Make(next);
                disk.Restart(UnsyncedWrites.Dropped);
                await using var last = Open(disk);
                Assert.True(last.IsClaimed);
                Assert.Empty(last.ListShards());
            }
        }
    }

    /// <summary>The owner was read from the machine's disk, whatever disk the directory was opened on.</summary>
    [Fact]
    public async Task Claim_OfAnotherNodesDirectory_IsRefusedAndChangesNothing()
    {
        using var disk = EmptyDisk();
        await using (var directory = Open(disk))
            Steps[0].Make(directory);
        await using var reopened = Open(disk);
        var calls = disk.Calls;
        Assert.Throws<ForeignDirectoryException>(() => reopened.Claim(new(2), "c", new Lineage(UInt128.MaxValue)));
        Steps[0].Make(reopened);
        Assert.Equal(calls, disk.Calls);
    }

    /// <summary>After the coordinator's data was lost and the cluster created anew, nodes ended with the two ids and nothing that would have helped.</summary>
    [Fact]
    public async Task Claim_ForAnotherCluster_SaysHowToUndoItsCreation()
    {
        using var disk = EmptyDisk();
        await using var directory = Open(disk);
        Steps[0].Make(directory);
        var refused = Assert.Throws<ForeignDirectoryException>(() => directory.Claim(new(1), "anew", new Lineage(UInt128.MaxValue)));
        Assert.Contains("belongs to another cluster", refused.Message, StringComparison.Ordinal);
        Assert.Contains("etcdctl del --prefix /kvcluster/NAME/", refused.Message, StringComparison.Ordinal);
        Assert.Contains("kv admin coordinator recover", refused.Message, StringComparison.Ordinal);
    }

    /// <summary>The next process has the state before or after the interrupted change, repeats that and makes the others, and then all of them stay.</summary>
    private async Task CheckGoesOnAsync(SimulatedDisk disk, List<string> states, int done, string story)
    {
        await using (var directory = Open(disk))
        {
            var found = TextOf(directory, disk);
            Assert.True(found == states[done] || found == states[Math.Min(done + 1, Steps.Length)], $"{story}: {found} is there");
            for (var step = done; step < Steps.Length; step++)
                Steps[step].Make(directory);
        }

        disk.Restart(UnsyncedWrites.Dropped);
        await using var reopened = Open(disk);
        var text = TextOf(reopened, disk);
        Assert.True(states[^1] == text, $"{story}, then all other changes and a power loss: {text}");
        // Refused if the owner is another one.
        Steps[0].Make(reopened);
        Assert.All(disk.List(_directory.Path), static file => Assert.DoesNotContain(DurableFile.IncomingSuffix, file, StringComparison.Ordinal));
    }

    /// <summary>The number of changes that one process has made.</summary>
    /// <param name="disk">The disk.</param>
    /// <param name="opened">Called before the first one.</param>
    private async Task<int> MakeUntilItFailsAsync<TFailure>(SimulatedDisk disk, Action opened)
        where TFailure : Exception
    {
        await using var directory = Open(disk);
        opened();
        for (var step = 0; step < Steps.Length; step++)
        {
            try
            {
                Steps[step].Make(directory);
            }
            catch (TFailure)
            {
                return step;
            }
        }

        return Steps.Length;
    }

    /// <summary>The state before the first change and after each.</summary>
    private async Task<List<string>> StatesOfASoundRunAsync(SimulatedDisk filled)
    {
        using var disk = filled.Copy();
        await using var directory = Open(disk);
        var states = new List<string> { TextOf(directory, disk) };
        foreach (var (_, make) in Steps)
        {
            make(directory);
            states.Add(TextOf(directory, disk));
            Assert.NotEqual(states[^2], states[^1]);
        }

        return states;
    }

    /// <summary>With three replicas, and without an owner.</summary>
    private async Task<SimulatedDisk> FilledDiskAsync()
    {
        var disk = EmptyDisk();
        await using var directory = Open(disk);
        foreach (var shard in (ShardId[])[Lost, Retired, RetiredLater])
        {
            var path = directory.ShardPath(shard);
            disk.CreateDirectories(path);
            disk.Open(Path.Combine(path, "control"), new StorageFileOptions(StorageFileMode.CreateNew)).Dispose();
            disk.SyncDirectory(path);
        }

        return disk;
    }

    private SimulatedDisk EmptyDisk()
    {
        var disk = new SimulatedDisk();
        disk.CreateDirectories(_directory.Path);
        return disk;
    }

    private NodeDirectory Open(SimulatedDisk disk) => NodeDirectory.Open(_directory.Path, disk);

    private static string NameOf(int step) => step < Steps.Length ? Steps[step].Name : "nothing";

    private static void RetireIfThere(NodeDirectory directory, ShardId shard)
    {
        if (directory.ListShards().Contains(shard))
            directory.Retire(shard, new(shard.Value));
    }

    /// <summary>A replica whose directory has both names, as some file systems may leave it, is in its place: it will be retired again.</summary>
    private static string TextOf(NodeDirectory directory, SimulatedDisk disk)
    {
        var shards = directory.ListShards();
        var retired = disk.DirectoryExists(directory.RetiredPath) ? disk.List(directory.RetiredPath) : [];
        return string.Join(
            '\n',
            [
                directory.IsClaimed ? "claimed" : "not claimed",
                directory.Starts.ToString(),
                .. shards.Select(shard => $"shard {shard} {string.Join(' ', disk.List(directory.ShardPath(shard)))}"),
                .. retired.Where(name => !shards.Any(shard => name.StartsWith($"{shard}-", StringComparison.Ordinal)))
                    .Select(name => $"retired {name} {string.Join(' ', disk.List(Path.Combine(directory.RetiredPath, name)))}"),
            ]);
    }
}
