using KvCluster.Disk;
using KvCluster.Node.Coordination;
using KvCluster.Node.Coordination.Embedded;
using KvCluster.Replication.Protocol;
using KvCluster.Storage.Files;

namespace KvCluster.Tests.Node;

public sealed class EmbeddedCoordinatorTests : IDisposable
{
    private static readonly CancellationToken Never = CancellationToken.None;

    private readonly TemporaryDirectory _directory = new();
    private readonly ManualTime _time = new();

    private string FilePath => Path.Combine(_directory.Path, "coordinator");

    public void Dispose() => _directory.Dispose();

    [Fact]
    public async Task Contract_Holds()
    {
        await using var coordinator = Open();
        await CoordinatorContract.CheckAsync(coordinator);
    }

    [Fact]
    public async Task Open_AfterClose_RestoresEverything()
    {
        long revision;
        await using (var coordinator = Open())
        {
            await coordinator.CompareAndSetAsync("/k", 0, "1", 0, Never);
            revision = (await coordinator.CompareAndSetAsync("/l", 0, "2", 0, Never)).Revision;
        }
        await using var reopened = Open();
        var list = await reopened.ListAsync("/", Never);
        Assert.Equal([("/k", "1"), ("/l", "2")], list.Entries.Select(entry => (entry.Key, entry.Value)));
        Assert.Equal(revision, list.Revision);
        Assert.Equal(SetOutcome.Won, (await reopened.CompareAndSetAsync("/l", revision, "3", 0, Never)).Outcome);
    }

    [Fact]
    public async Task Open_WhileAnotherHasItOpen_IsRefused()
    {
        await using var coordinator = Open();
        Assert.Throws<DirectoryInUseException>(() => Open());
    }

    [Fact]
    public async Task Open_AfterATornAppend_DropsOnlyThatRecord()
    {
        await using (var coordinator = Open())
            await coordinator.CompareAndSetAsync("/k", 0, "1", 0, Never);
        var whole = await File.ReadAllBytesAsync(FilePath);
        await using (var coordinator = Open())
            await coordinator.CompareAndSetAsync("/l", 0, "2", 0, Never);
        var longer = await File.ReadAllBytesAsync(FilePath);
        for (var bytes = whole.Length; bytes < longer.Length; bytes++)
        {
            await File.WriteAllBytesAsync(FilePath, longer[..bytes]);
            await using var reopened = Open();
            Assert.Equal(["/k"], (await reopened.ListAsync("/", Never)).Entries.Select(entry => entry.Key));
        }
    }

    [Fact]
    public async Task Open_WithADamagedRecordBeforeAGoodOne_IsRefusedAndChangesNothing()
    {
        await using (var coordinator = Open())
        {
            await coordinator.CompareAndSetAsync("/k", 0, "1", 0, Never);
            await coordinator.CompareAndSetAsync("/l", 0, "2", 0, Never);
        }
        var good = await File.ReadAllBytesAsync(FilePath);
        var lastRecord = good.AsSpan().LastIndexOf("KVCO"u8);
        for (var index = 0; index < lastRecord; index++)
        {
            var bad = good.ToArray();
            bad[index] ^= 0x10;
            await File.WriteAllBytesAsync(FilePath, bad);
            Assert.Throws<CorruptCoordinatorFileException>(() => Open());
            Assert.Equal(bad, await File.ReadAllBytesAsync(FilePath));
        }
    }

    [Fact]
    public async Task CompareAndSet_ManyTimes_KeepsTheFileShort()
    {
        await using (var coordinator = Open())
        {
            var revision = 0L;
            var value = new string('x', 20_000);
            for (var change = 0; change < 200; change++)
                revision = (await coordinator.CompareAndSetAsync("/k", revision, value + change, 0, Never)).Revision;
            Assert.InRange(coordinator.FileBytes, 1, 2 << 20);
        }
        await using var reopened = Open();
        Assert.EndsWith("x199", (await reopened.GetAsync("/k", Never)).Value, StringComparison.Ordinal);
    }

    [Fact]
    public async Task Lease_NotKeptAlive_EndsWithItsKeys()
    {
        await using var coordinator = Open();
        var lease = await coordinator.GrantLeaseAsync(TimeSpan.FromSeconds(10), Never);
        await coordinator.CompareAndSetAsync("/k", 0, "1", lease, Never);
        _time.Advance(TimeSpan.FromSeconds(9));
        Assert.True(await coordinator.KeepAliveAsync(lease, Never));
        _time.Advance(TimeSpan.FromSeconds(9));
        Assert.NotNull((await coordinator.GetAsync("/k", Never)).Value);
        _time.Advance(TimeSpan.FromSeconds(1));
        Assert.Null((await coordinator.GetAsync("/k", Never)).Value);
        Assert.False(await coordinator.KeepAliveAsync(lease, Never));
    }

    [Fact]
    public async Task Lease_AfterReopen_HasItsFullTimeAgain()
    {
        await using (var coordinator = Open())
        {
            var lease = await coordinator.GrantLeaseAsync(TimeSpan.FromSeconds(10), Never);
            await coordinator.CompareAndSetAsync("/k", 0, "1", lease, Never);
        }
        _time.Advance(TimeSpan.FromSeconds(60));
        await using var reopened = Open();
        _time.Advance(TimeSpan.FromSeconds(9));
        Assert.NotNull((await reopened.GetAsync("/k", Never)).Value);
        _time.Advance(TimeSpan.FromSeconds(1));
        Assert.Null((await reopened.GetAsync("/k", Never)).Value);
    }

    [Fact]
    public async Task Watch_FromADiscardedRevision_ReportsIt()
    {
        await using (var coordinator = Open())
            await coordinator.CompareAndSetAsync("/k", 0, "1", 0, Never);
        await using var reopened = Open();
        await Assert.ThrowsAsync<CoordinatorCompactedException>(async () => await reopened.WatchAsync("/", 2, Never).GetAsyncEnumerator().MoveNextAsync());
    }

    [Fact]
    public async Task Watch_WhenTheCoordinatorCloses_Ends()
    {
        var coordinator = Open();
        var watching = coordinator.WatchAsync("/", 2, Never).GetAsyncEnumerator().MoveNextAsync().AsTask();
        Assert.False(watching.IsCompleted);
        await coordinator.DisposeAsync();
        await Assert.ThrowsAsync<CoordinatorUnavailableException>(() => watching);
    }

    [Fact]
    public async Task CompareAndSet_WhenTheDiskFails_FailsForGood()
    {
        using var disk = DiskWithDirectory();
        await using var coordinator = EmbeddedCoordinator.Open(_directory.Path, _time, disk);
        await coordinator.CompareAndSetAsync("/k", 0, "1", 0, Never);
        disk.Refuse = (operation, path) => operation == "Sync" ? new StorageIoException(operation, path, "planned") : null;
        await Assert.ThrowsAsync<CoordinatorUnavailableException>(() => coordinator.CompareAndSetAsync("/k", 2, "2", 0, Never));
        disk.Refuse = null;
        await Assert.ThrowsAsync<CoordinatorUnavailableException>(() => coordinator.GetAsync("/k", Never));
    }

    /// <summary>
    /// Power is lost at every call of a short run, with each fate of unsynced writes. Every answered change is there, and nothing that was not
    /// requested.
    /// </summary>
    [Fact]
    [Trait("Turn", "4")]
    public async Task Open_AfterACrashAtAnyCall_HasEveryAnsweredChange()
    {
        for (var call = 1; ; call++)
        {
            var crashed = false;
            foreach (var unsynced in Enum.GetValues<UnsyncedWrites>())
            {
                using var disk = DiskWithDirectory();
                disk.CrashAtCall = disk.Calls + call;
                var answered = await CountUntilCrashAsync(disk);
                crashed |= disk.IsOff;
                disk.Restart(unsynced, seed: call);
                await using var reopened = EmbeddedCoordinator.Open(_directory.Path, _time, disk);
                var value = (await reopened.GetAsync("/k", Never)).Value;
                Assert.InRange(value is null ? 0 : value.Length / 200_000, answered, answered + 1);
            }
            if (!crashed)
                break;
        }
    }

    /// <summary>A process ended between a write and its sync. The next one answered from what was only in memory, and a power loss undid it, so an epoch could be assigned twice.</summary>
    [Fact]
    public async Task Open_AfterAChangeThatWasNotSynced_AnswersWhatStays()
    {
        using var disk = DiskWithDirectory();
        await using (var coordinator = EmbeddedCoordinator.Open(_directory.Path, _time, disk))
        {
            var set = await coordinator.CompareAndSetAsync("/k", 0, "1", 0, Never);
            disk.Refuse = static (operation, path) => operation == "Sync" ? new StorageIoException(operation, path, "planned") : null;
            await Assert.ThrowsAsync<CoordinatorUnavailableException>(() => coordinator.CompareAndSetAsync("/k", set.Revision, "2", 0, Never));
        }

        disk.Refuse = null;
        string? answered;
        await using (var next = EmbeddedCoordinator.Open(_directory.Path, _time, disk))
            answered = (await next.GetAsync("/k", Never)).Value;
        disk.Restart(UnsyncedWrites.Dropped);
        await using var last = EmbeddedCoordinator.Open(_directory.Path, _time, disk);
        Assert.Equal(answered, (await last.GetAsync("/k", Never)).Value);
    }

    /// <summary>A process ended between the rename of the rewritten file and the sync of the directory. The next one appended to a file whose name a power loss took away, with all that was in it.</summary>
    [Fact]
    public async Task Open_AfterARewriteWhoseNameWasNotSynced_KeepsWhatIsAppended()
    {
        using var disk = DiskWithDirectory();
        await using (var coordinator = EmbeddedCoordinator.Open(_directory.Path, _time, disk))
        {
            disk.Refuse = static (operation, path) => operation == "Sync directory" ? new StorageIoException(operation, path, "planned") : null;
            await Assert.ThrowsAsync<CoordinatorUnavailableException>(async () =>
            {
                var revision = 0L;
                for (var change = 0; change < 50; change++)
                    revision = (await coordinator.CompareAndSetAsync("/k", revision, new string('x', 200_000), 0, Never)).Revision;
            });
        }

        disk.Refuse = null;
        await using (var next = EmbeddedCoordinator.Open(_directory.Path, _time, disk))
            Assert.Equal(SetOutcome.Won, (await next.CompareAndSetAsync("/after", 0, "1", 0, Never)).Outcome);
        disk.Restart(UnsyncedWrites.Dropped);
        await using var last = EmbeddedCoordinator.Open(_directory.Path, _time, disk);
        Assert.Equal("1", (await last.GetAsync("/after", Never)).Value);
    }

    // Writes values that grow by 200,000 bytes each time, so that the file is rewritten. Returns the number of answered changes.
    private async Task<int> CountUntilCrashAsync(SimulatedDisk disk)
    {
        var answered = 0;
        try
        {
            await using var coordinator = EmbeddedCoordinator.Open(_directory.Path, _time, disk);
            var revision = 0L;
            for (var change = 1; change <= 3; change++)
            {
                revision = (await coordinator.CompareAndSetAsync("/k", revision, new string('x', change * 200_000), 0, Never)).Revision;
                answered = change;
            }
            for (var change = 0; change < 8; change++)
                revision = (await coordinator.CompareAndSetAsync("/k", revision, new string('y', 3 * 200_000), 0, Never)).Revision;
        }
        catch (Exception failure) when (failure is SimulatedCrashException or CoordinatorUnavailableException)
        {
            Assert.True(disk.IsOff);
        }
        return answered;
    }

    private SimulatedDisk DiskWithDirectory()
    {
        var disk = new SimulatedDisk();
        disk.CreateDirectories(_directory.Path);
        return disk;
    }

    private EmbeddedCoordinator Open() => EmbeddedCoordinator.Open(_directory.Path, _time);
}
