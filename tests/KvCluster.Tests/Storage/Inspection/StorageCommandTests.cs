using System.Text.Json;
using KvCluster.Disk;
using KvCluster.Processes;
using KvCluster.Storage;
using KvCluster.Storage.Files;
using KvCluster.Storage.Inspection;
using KvCluster.Storage.Transactions;
using KvCluster.Tests.Cli;
using KvCluster.Tests.Storage.Store;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Storage.Inspection;

/// <summary>kv-node storage, as an operator runs it, on a real disk.</summary>
public sealed class StorageCommandTests : IDisposable
{
    private readonly TemporaryDirectory _folder = new();
    private readonly string _replica;

    public StorageCommandTests()
    {
        Directory.CreateDirectory(Path.Combine(_folder.Path, "data", "shards"));
        _replica = Path.Combine(_folder.Path, "data", "shards", "1");
    }

    private string Control => Path.Combine(_replica, "control");

    public void Dispose() => _folder.Dispose();

    [ToolFact("bash")]
    public async Task Storage_CheckRecoverAndCheck_SaysWhatHappens()
    {
        await FillAsync();
        var (code, output, error) = await RunAsync(
            $"$NODE storage check '{_replica}' && $NODE storage dump '{_replica}' --keys key && $NODE storage recover '{_replica}'");
        Assert.Equal((0, ""), (code, error));
        Assert.Contains("is intact", output, StringComparison.Ordinal);
        Assert.Contains("key      \"key-1\": 5 bytes", output, StringComparison.Ordinal);
        Assert.Contains("Nothing to recover", output, StringComparison.Ordinal);

        await File.WriteAllBytesAsync(Control, new byte[8192]);
        await File.WriteAllBytesAsync(Path.Combine(_folder.Path, "data", "LOCK"), []);
        (code, output, error) = await RunAsync($"$NODE storage check '{_replica}' --json; echo $? >&2; $NODE storage recover '{_replica}' --cluster-hash 5; "
            + $"$NODE storage recover '{_replica}' --cluster-hash 5 --accept-loss");
        Assert.Equal((0, "65\n"), (code, error));
        using var json = JsonDocument.Parse(output.Split('\n')[0]);
        Assert.Equal("control file unreadable", json.RootElement.GetProperty("row").GetString());
        Assert.Contains(json.RootElement.GetProperty("findings").EnumerateArray(), finding => finding.GetProperty("damage").GetBoolean()
            && finding.GetProperty("file").GetString() == Control);
        Assert.Contains("Nothing was changed. If the shard has other replicas, do not recover", output, StringComparison.Ordinal);
        Assert.Contains($"What was there before is in '{_replica}.before-recovery'", output, StringComparison.Ordinal);
        Assert.Equal(new byte[8192], await File.ReadAllBytesAsync(Path.Combine(_replica + ".before-recovery", "control")));
        Assert.False(StoreCheck.Run(LocalDisk.Instance, _replica).IsDamaged);
    }

    [ToolFact("bash")]
    [Trait("Turn", "5")]
    public async Task Storage_BadInput_IsOneLineAndChangesNothing()
    {
        await FillAsync();
        var control = await File.ReadAllBytesAsync(Control);
        await File.WriteAllBytesAsync(Path.Combine(_folder.Path, "file"), [1]);
        Directory.CreateDirectory(Path.Combine(_folder.Path, "other", "shards", "1"));
        var version = (byte[])control.Clone();
        foreach (var slot in (int[])[0, 4096])
        {
            version[slot + 4] = 9;
            BitConverter.TryWriteBytes(version.AsSpan(slot + 128), KvCluster.Storage.Encoding.Crc32C.Of(version.AsSpan(slot, 128)));
        }
        await File.WriteAllBytesAsync(Path.Combine(_folder.Path, "other", "shards", "1", "control"), version);
        // Taken as a node takes it, and as an embedded store does.
        Directory.CreateDirectory(Path.Combine(_folder.Path, "embedded", "store"));
        using var ofStore = new FileStream(Path.Combine(_folder.Path, "embedded", "LOCK"), FileMode.Create, FileAccess.ReadWrite, FileShare.None);
        using var held = new FileStream(Path.Combine(_folder.Path, "data", "LOCK"), FileMode.Create, FileAccess.ReadWrite, FileShare.None);
        var (_, _, error) = await RunAsync($"cd '{_folder.Path}'; for dir in file none data data/shards/1 embedded/store other/shards/1; "
            + "do $NODE storage check $dir; echo $? >&2; done; $NODE storage recover data/shards/1 --accept-loss; echo $? >&2; for dir in none file; "
            + "do $NODE storage probe $dir; echo $? >&2; done");
        Assert.Equal(
            [
                $"kv-node: '{_folder.Path}/file' is not a replica's directory: it is a file.", "3",
                $"kv-node: '{_folder.Path}/none' is not a replica's directory: it does not exist.", "3",
                $"kv-node: '{_folder.Path}/data' is not a replica's directory: it is the data directory of a node; "
                + "the replicas are the directories in 'shards' in it.", "3",
                $"kv-node: The directory '{_folder.Path}/data' is in use by another process.", "3",
                $"kv-node: The directory '{_folder.Path}/embedded' is in use by another process.", "3",
                $"kv-node: '{_folder.Path}/other/shards/1/control' has format version 9, which this build cannot read; its own is 1.", "4",
                $"kv-node: The directory '{_folder.Path}/data' is in use by another process.", "3",
                $"kv-node: The directory '{_folder.Path}/none' does not exist.", "3",
                $"kv-node: '{_folder.Path}/file' is a file, not a directory.", "3",
            ],
            error.TrimEnd('\n').Split('\n'));
        Assert.Equal(control, await File.ReadAllBytesAsync(Control));
    }

    /// <summary>The lock was looked for two levels above the path as it was given. By another path, a replica was recovered that its node was using.</summary>
    [ToolFact("bash")]
    public async Task Recover_ByAnotherPath_TakesTheSameLock()
    {
        await FillAsync();
        await File.WriteAllBytesAsync(Control, new byte[8192]);
        var data = Path.Combine(_folder.Path, "data");
        Directory.CreateSymbolicLink(Path.Combine(_folder.Path, "shards-link"), Path.Combine(data, "shards"));
        Directory.CreateSymbolicLink(Path.Combine(_folder.Path, "replica-link"), "shards-link/1");
        using (new FileStream(Path.Combine(data, "LOCK"), FileMode.Create, FileAccess.ReadWrite, FileShare.None))
        {
            var (_, _, refused) = await RunAsync($"cd '{_folder.Path}'; for dir in shards-link/1 replica-link; do $NODE storage recover $dir --cluster-hash 5 "
                + "--accept-loss --lone-copy; echo $? >&2; done");
            Assert.Equal(
                [$"kv-node: The directory '{data}' is in use by another process.", "3", $"kv-node: The directory '{data}' is in use by another process.", "3"],
                refused.TrimEnd('\n').Split('\n'));
        }
        Assert.Equal(new byte[8192], await File.ReadAllBytesAsync(Control));
    }

    /// <summary>The link was renamed, and the new directory was put in its place, where no node looks for it.</summary>
    [ToolFact("bash")]
    public async Task Recover_ByALink_ReplacesTheDirectoryAndNotTheLink()
    {
        await FillAsync();
        await File.WriteAllBytesAsync(Control, new byte[8192]);
        await File.WriteAllBytesAsync(Path.Combine(_folder.Path, "data", "LOCK"), []);
        var link = Path.Combine(_folder.Path, "replica-link");
        Directory.CreateSymbolicLink(link, "data/shards/1");
        var (code, output, error) = await RunAsync($"$NODE storage recover '{link}' --cluster-hash 5 --accept-loss");
        Assert.Equal((0, ""), (code, error));
        Assert.Contains($"What was there before is in '{_replica}.before-recovery'", output, StringComparison.Ordinal);
        Assert.Equal("data/shards/1", new DirectoryInfo(link).LinkTarget);
        Assert.False(StoreCheck.Run(LocalDisk.Instance, _replica).IsDamaged);
        Assert.Equal(new byte[8192], await File.ReadAllBytesAsync(Path.Combine(_replica + ".before-recovery", "control")));
    }

    /// <summary>
    /// The command that the documentation of <see cref="KvStoreDamagedException"/> names. It asked for the hash of a cluster, which such a store does not have.
    /// </summary>
    [ToolFact("bash")]
    public async Task Recover_OfAnEmbeddedStore_NeedsNothingElse()
    {
        var home = Path.Combine(_folder.Path, "embedded");
        await using (var store = KvStore.Open(home))
        {
            await store.WriteAsync(new KvBatch().Put(await store.CreateTreeAsync("t"), "k"u8, "v"u8));
            await store.CheckpointAsync();
        }
        await File.WriteAllBytesAsync(Path.Combine(home, "store", "control"), new byte[8192]);
        Assert.Throws<KvStoreDamagedException>(() => KvStore.Open(home));
        var (code, _, error) = await RunAsync($"cd '{_folder.Path}'; $NODE storage recover embedded/store --accept-loss");
        Assert.Equal((0, ""), (code, error));
        await using var again = KvStore.Open(home);
        using var snapshot = again.OpenSnapshot();
        Assert.Equal("v"u8, snapshot.Get(again.Tree("t"), "k"u8)!);
    }

    [ToolFact("bash")]
    public async Task Recover_OutsideADataDirectory_NeedsTheWordThatItIsACopy()
    {
        await FillAsync();
        var copy = Path.Combine(_folder.Path, "copies", "of", "1");
        EtcdProcesses.CopyFolder(_replica, copy);
        await File.WriteAllBytesAsync(Path.Combine(copy, "control"), new byte[8192]);
        var (_, output, error) = await RunAsync(
            $"$NODE storage recover '{copy}' --cluster-hash 5; $NODE storage recover '{copy}' --cluster-hash 5 --accept-loss; echo $? >&2");
        Assert.Contains("plan     Make a control file", output, StringComparison.Ordinal);
        Assert.Matches("^kv-node: There is no data directory above '.*'.* nothing was changed.*--lone-copy.*\n3\n$", error);
        Assert.Equal(new byte[8192], await File.ReadAllBytesAsync(Path.Combine(copy, "control")));
        (var code, output, _) = await RunAsync($"$NODE storage recover '{copy}' --cluster-hash 5 --accept-loss --lone-copy");
        Assert.Equal(0, code);
        Assert.Contains("Recovered up to", output, StringComparison.Ordinal);
    }

    [Fact]
    public void Probe_MeasuresTheDiskAndLeavesNothing()
    {
        var report = DeviceProbe.Run(LocalDisk.Instance, TimeProvider.System, _folder.Path);
        Assert.True(report.Buffered.Recycled > TimeSpan.Zero && report.OnePerSecond > 0 && report.DirectorySync > TimeSpan.Zero);
        Assert.Equal(report.IsDirect, report.Direct is not null && report.TwoPerSecond > 0 && report.FourPerSecond > 0);
        // What it answers depends on the file system and on the disk.
        _ = DeviceProbe.MeasureWhatPays(LocalDisk.Instance, TimeProvider.System, _folder.Path);
        Assert.Equal(["data"], Directory.EnumerateFileSystemEntries(_folder.Path).Select(Path.GetFileName));
        Assert.Throws<DirectoryNotFoundException>(() => DeviceProbe.Run(LocalDisk.Instance, TimeProvider.System, Path.Combine(_folder.Path, "none")));
    }

    [ToolFact("bash")]
    public async Task Probe_AsACommand_SaysWhatItMeasuredAndWhatItWouldChoose()
    {
        var (code, output, error) = await RunAsync($"$NODE storage probe '{_folder.Path}'");
        Assert.Equal((0, ""), (code, error));
        var lines = output.TrimEnd('\n').Split('\n');
        Assert.Matches("^direct I/O       (yes|no)$", lines[0]);
        foreach (var name in (string[])["write and sync   ", "one in flight    ", "1 MiB            ", "new name         ", "allocate         "])
            Assert.Single(lines, line => line.StartsWith(name, StringComparison.Ordinal));
        foreach (var name in (string[])["two in flight    ", "four in flight   "])
            Assert.Equal(lines[0].EndsWith("yes", StringComparison.Ordinal), lines.Any(line => line.StartsWith(name, StringComparison.Ordinal)));
        Assert.Matches("^By this measurement, an engine on this disk would write its journal (with direct I/O and up to (two|four) writes in flight|through "
            + "the page cache with one write in flight), into (zero-filled|allocated) or recycled segments. (Large records|Records) would ", lines[^2]);
        Assert.Contains("its log says what it has chosen", lines[^1], StringComparison.Ordinal);
        Assert.Equal(["data"], Directory.EnumerateFileSystemEntries(_folder.Path).Select(Path.GetFileName));
    }

    // Each start wrote up to 10 MiB, and nodes start by the hundred in tests.
    [Fact]
    public void MeasureWhatPays_OnADiskThatIsClearlyFast_WritesLittle()
    {
        var writes = 0;
        using var disk = new SimulatedDisk();
        disk.CreateDirectory("/node");
        disk.DuringWrite = path => writes += Path.GetFileName(path) == "large" ? 1 : 0;
        // No time passes.
        Assert.Equal(new JournalUse(Filling: false, Compression: false, JournalWrites: 2), DeviceProbe.MeasureWhatPays(disk, new ManualTime(), "/node"));
        // The first one makes the file.
        Assert.Equal(3, writes);
        Assert.Empty(disk.List("/node"));
    }

    // What the first measurement had found was dropped.
    [Fact]
    public void MeasureWhatPays_WithoutSpaceForTheSecondMeasurement_HasTheFirst()
    {
        using var disk = new SimulatedDisk();
        disk.CreateDirectory("/node");
        disk.CapacityBytes = disk.UsedBytes + (512 << 10);
        Assert.Equal(new JournalUse(Filling: false, Compression: false, JournalWrites: 2), DeviceProbe.MeasureWhatPays(disk, new ManualTime(), "/node"));
        Assert.Empty(disk.List("/node"));
    }

    [Theory]
    [InlineData(111, 71, true)]
    [InlineData(551, 102, true)]
    [InlineData(459, 513, false)]
    [InlineData(1, 1, false)]
    public void FillingPays_OnlyWhereItIsMuchFaster(int allocated, int zeroed, bool pays) =>
        Assert.Equal(pays, DeviceProbe.FillingPays(new WriteTimes(TimeSpan.FromMicroseconds(allocated), TimeSpan.FromMicroseconds(zeroed), default)));

    [Theory]
    [InlineData(0.4, false)]
    [InlineData(4, false)]
    [InlineData(8, true)]
    public void CompressionPays_OnlyWhereTheDiskIsSlow(double milliseconds, bool pays) =>
        Assert.Equal(pays, DeviceProbe.CompressionPays(TimeSpan.FromMilliseconds(milliseconds)));

    [Theory]
    [InlineData(0.1, 2)]
    [InlineData(1.5, 2)]
    [InlineData(2.4, 4)]
    public void JournalWrites_AreMoreOnlyWhereTheDiskIsSlow(double milliseconds, int writes) =>
        Assert.Equal(writes, DeviceProbe.JournalWrites(TimeSpan.FromMilliseconds(milliseconds)));

    [Fact]
    public void MeasureWhatPays_OnADiskThatTakesMilliseconds_HasFourWritesInFlight()
    {
        var time = new ManualTime();
        using var disk = new SimulatedDisk();
        disk.CreateDirectory("/node");
        disk.DuringWrite = _ => time.Advance(TimeSpan.FromMilliseconds(3));
        Assert.Equal(new JournalUse(Filling: false, Compression: false, JournalWrites: 4), DeviceProbe.MeasureWhatPays(disk, time, "/node"));
    }

    private static Task<(int ExitCode, string Output, string Error)> RunAsync(string script) => KvProcess.RunInShellAsync(script);

    private async Task FillAsync()
    {
        using var store = StandaloneStore.Open(LocalDisk.Instance, _replica, StoreBench.SmallOptions, TimeProvider.System, NullLogger.Instance);
        for (var index = 0; index < 3; index++)
        {
            var request = WriteRequest.Rent();
            request.Put(StoreBench.Text($"key-{index}"), StoreBench.Text("value"));
            await store.TryWrite(request)!.Value;
        }
        await store.Store.Checkpoints.RequestAsync();
    }
}
