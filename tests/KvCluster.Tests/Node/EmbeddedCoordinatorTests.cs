using System.Globalization;
using Google.Protobuf;
using KvCluster.Disk;
using KvCluster.Internal.Etcd;
using KvCluster.Node.Coordination;
using KvCluster.Node.Coordination.Embedded;
using KvCluster.Replication.Protocol;
using KvCluster.Storage.Files;

namespace KvCluster.Tests.Node;

public sealed class EmbeddedCoordinatorTests : IDisposable
{
    private const int KeysInParts = 3;

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

    /// <summary>
    /// The whole state was one record. Beyond 64 MiB it was written all the same, and the next start took it for damaged: all records were lost.
    /// </summary>
    [Fact]
    public async Task Rewrite_OfMuch_MakesSeveralRecords()
    {
        var state = StateOf(values: 5, Value(100_000));
        var parts = state.Whole();
        Assert.Equal([2, 2, 1], parts.Select(static part => part.Events.Count));
        Assert.Equal([2u, 1u, 0u], parts.Select(static part => part.Following));
        using (var file = NewFile())
        {
            file.Rewrite(parts);
            Assert.Equal(new FileInfo(FilePath).Length, file.Bytes);
        }

        await using var reopened = Open();
        var list = await reopened.ListAsync("/", Never);
        Assert.Equal(["/0", "/1", "/2", "/3", "/4"], list.Entries.Select(static entry => entry.Key));
        Assert.Equal(state.Revision, list.Revision);
        Assert.Equal(SetOutcome.Won, (await reopened.CompareAndSetAsync("/4", list.Entries[^1].ModRevision, "1", 0, Never)).Outcome);
    }

    /// <summary>They are written at once, so none is the rest of an append that was interrupted.</summary>
    [Fact]
    public async Task Open_WithTheLastOfSeveralFirstRecordsDamaged_IsRefusedAndChangesNothing()
    {
        using (var file = NewFile())
            file.Rewrite(StateOf(values: 3, Value(200_000)).Whole());
        var good = await File.ReadAllBytesAsync(FilePath);
        var lastRecord = good.AsSpan().LastIndexOf("KVCO"u8);
        byte[] flipped = [.. good];
        flipped[^1] ^= 1;
        foreach (var bad in (byte[][])[flipped, good[..^1], good[..lastRecord]])
        {
            await File.WriteAllBytesAsync(FilePath, bad);
            Assert.Throws<CorruptCoordinatorFileException>(() => Open());
            Assert.Equal(bad, await File.ReadAllBytesAsync(FilePath));
        }
    }

    /// <summary>As earlier programs wrote it, and refused to read it.</summary>
    [Fact]
    public async Task Open_WithEverythingInOneRecordBeyondTheLimit_RestoresEverything()
    {
        var whole = new Internal.V1.CoordinatorRecord { ClusterId = 5, Revision = 3 };
        foreach (var part in StateOf(values: 2, Value((CoordinatorFile.PayloadBytesMax / 2) + 1)).Whole())
            whole.Events.Add(part.Events);
        Assert.True(whole.CalculateSize() > CoordinatorFile.PayloadBytesMax);
        CoordinatorFile.Open(LocalDisk.Instance, _directory.Path, () => whole, static _ => { }).Dispose();

        await using (var reopened = Open())
            await reopened.CompareAndSetAsync("/2", 0, "1", 0, Never);
        await using var again = Open();
        Assert.Equal(3, again.Range(new RangeRequest { Key = ByteString.CopyFromUtf8("/"), RangeEnd = ByteString.CopyFromUtf8("0"), CountOnly = true }).Count);
    }

    [Fact]
    public async Task CompareAndSet_LongerThanARecordMayBe_IsRefusedAndChangesNothing()
    {
        await using (var coordinator = Open())
        {
            await coordinator.CompareAndSetAsync("/k", 0, "1", 0, Never);
            var (before, tooLong) = (coordinator.FileBytes, new string('x', CoordinatorFile.PayloadBytesMax));
            var refused = await Assert.ThrowsAsync<CoordinatorUnavailableException>(() => coordinator.CompareAndSetAsync("/l", 0, tooLong, 0, Never));
            Assert.Contains("Nothing was changed", refused.Message, StringComparison.Ordinal);
            Assert.Equal(before, coordinator.FileBytes);
            Assert.Equal(before, new FileInfo(FilePath).Length);
            Assert.Equal(SetOutcome.Won, (await coordinator.CompareAndSetAsync("/l", 0, "2", 0, Never)).Outcome);
        }
        await using var reopened = Open();
        Assert.Equal([("/k", "1"), ("/l", "2")], (await reopened.ListAsync("/", Never)).Entries.Select(static entry => (entry.Key, entry.Value)));
    }

    /// <summary>The file is read as a whole, which cannot be done with any length.</summary>
    [Fact]
    public void Plan_BeyondTheLimitOfAllKeysAndValues_IsRefusedUnlessItMakesRoom()
    {
        var value = Value(32 << 20);
        var state = StateOf(values: 7, value);
        Assert.Contains(
            "Nothing was changed", Assert.Throws<CoordinatorRequestException>(() => Plan(state, Put("/7", value))).Message, StringComparison.Ordinal);
        Assert.NotNull(Plan(state, Put("/6", value)));
        state.Apply(Plan(state, new RequestOp { RequestDeleteRange = new DeleteRangeRequest { Key = ByteString.CopyFromUtf8("/0") } }));
        state.Apply(Plan(state, Put("/7", value)));
        Assert.Equal(7 * (value.Length + 2L), state.LiveBytes);
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

    /// <summary>
    /// Power is lost at every call of a run that rewrites the file in several records. Every answered change is there, and nothing that was not requested.
    /// </summary>
    [Fact]
    public async Task Open_AfterACrashAtAnyCallOfARewriteInParts_HasEveryAnsweredChange()
    {
        var crashed = true;
        for (var call = 1; crashed; call++)
        {
            foreach (var unsynced in Enum.GetValues<UnsyncedWrites>())
            {
                using var disk = DiskWithDirectory();
                disk.CrashAtCall = disk.Calls + call;
                var answered = await CountUntilCrashInPartsAsync(disk);
                crashed = disk.IsOff;
                disk.Restart(unsynced, seed: call);
                await using var reopened = EmbeddedCoordinator.Open(_directory.Path, _time, disk);
                for (var key = 0; key < KeysInParts; key++)
                {
                    var found =
                        (await reopened.GetAsync(KeyInParts(key), Never)).Value is { } value ? int.Parse(value.TrimEnd('x'), CultureInfo.InvariantCulture) : -1;
                    var last = Enumerable.Range(0, answered).LastOrDefault(change => change % KeysInParts == key, -1);
                    Assert.True(found == last || (found == answered && found % KeysInParts == key), $"call {call}, {unsynced}: {KeyInParts(key)} has change "
                        + $"{found}, and {answered} changes were answered");
                }
            }
        }
    }

    /// <summary>
    /// A process ended between a write and its sync. The next one answered from what was only in memory, and a power loss undid it, so an epoch could be
    /// assigned twice.
    /// </summary>
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

    /// <summary>
    /// A process ended between the rename of the rewritten file and the sync of the directory. The next one appended to a file whose name a power loss took
    /// away, with all that was in it.
    /// </summary>
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

    private static string KeyInParts(int change) => string.Create(CultureInfo.InvariantCulture, $"/{change % KeysInParts}");

    // Changes three keys in turn, whose values are long enough for two records, until after the file was rewritten. Returns the number of answered changes.
    private async Task<int> CountUntilCrashInPartsAsync(SimulatedDisk disk)
    {
        var answered = 0;
        try
        {
            await using var coordinator = EmbeddedCoordinator.Open(_directory.Path, _time, disk);
            var (revisions, wasRewritten) = (new long[KeysInParts], false);
            for (var after = 0; after < 2; after += wasRewritten ? 1 : 0)
            {
                var before = coordinator.FileBytes;
                var value = answered.ToString(CultureInfo.InvariantCulture).PadRight(100_000, 'x');
                revisions[answered % KeysInParts] =
                    (await coordinator.CompareAndSetAsync(KeyInParts(answered), revisions[answered % KeysInParts], value, 0, Never)).Revision;
                answered++;
                wasRewritten |= coordinator.FileBytes < before;
                Assert.True(wasRewritten || answered < 50, "The file was not rewritten.");
            }
        }
        catch (Exception failure) when (failure is SimulatedCrashException or CoordinatorUnavailableException)
        {
            Assert.True(disk.IsOff);
        }
        return answered;
    }

    private static ByteString Value(int bytes) => UnsafeByteOperations.UnsafeWrap(new byte[bytes]);

    private static RequestOp Put(string key, ByteString value) => new() { RequestPut = new PutRequest { Key = ByteString.CopyFromUtf8(key), Value = value } };

    private static Internal.V1.CoordinatorRecord Plan(CoordinatorState state, RequestOp operation)
    {
        state.Plan(new TxnRequest { Success = { operation } }, out var change);
        return change!;
    }

    // The keys /0, /1 and so on, all with this value.
    private static CoordinatorState StateOf(int values, ByteString value)
    {
        var state = new CoordinatorState(historyEventsMax: 10);
        state.Apply(CoordinatorState.Empty(5));
        for (var key = 0; key < values; key++)
            state.Apply(Plan(state, Put(string.Create(CultureInfo.InvariantCulture, $"/{key}"), value)));
        return state;
    }

    private CoordinatorFile NewFile() => CoordinatorFile.Open(LocalDisk.Instance, _directory.Path, static () => CoordinatorState.Empty(5), static _ => { });

    private SimulatedDisk DiskWithDirectory()
    {
        var disk = new SimulatedDisk();
        disk.CreateDirectories(_directory.Path);
        return disk;
    }

    private EmbeddedCoordinator Open() => EmbeddedCoordinator.Open(_directory.Path, _time);
}
