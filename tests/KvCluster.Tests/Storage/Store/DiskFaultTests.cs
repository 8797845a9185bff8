using KvCluster.Disk;
using KvCluster.Storage.Context;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Sessions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>
/// The disk fails at any one call and then works again, under the run of <see cref="CrashTests"/>. If the call reports the failure, nothing answered
/// is lost. If it reports success but did something else, that is detected or leaves a prefix, and is never served.
/// </summary>
public sealed class DiskFaultTests
{
    /// <summary>Every seventh call of the run, with a different first call in each test. The nightly run takes all of them.</summary>
    private static readonly int Stride = Seeds.IsLong ? 1 : 7;

    /// <summary>The order in which the run's executors take turns. The nightly run takes another one each time.</summary>
    private static readonly int Seed = Seeds.Given ?? (Seeds.IsLong ? Random.Shared.Next() : 7);

    [Theory]
    [InlineData("Error", true)]
    [InlineData("SyncLosesData", true)]
    [InlineData("Error", false)]
    [InlineData("ShortWrite", false)]
    [Trait("Turn", "7")]
    public void AnyCall_FailsInAnotherWay_EndsTheEngineAndLosesNothingThatWasAnswered(string name, bool hasDirect) =>
        AnyCall_Fails_EndsTheEngineAndLosesNothingThatWasAnswered(name, hasDirect);

    [Theory]
    [InlineData("ShortWrite", true)]
    [InlineData("SyncLosesData", false)]
    public void AnyCall_Fails_EndsTheEngineAndLosesNothingThatWasAnswered(string name, bool hasDirect)
    {
        var fault = Enum.Parse<DiskFault>(name);
        var happened = ForEachCall(fault, hasDirect, (disk, run, story) =>
        {
            // A run that ends with a failure has changed nothing on the disk since.
            var (answered, failure) = run();
            Assert.True(failure is StorageIoException, $"{story}: the engine went on. It failed with {failure?.ToString() ?? "nothing"}.");
            // First the process restarts with what the running machine has; then power is lost.
            using (var bench = new StoreBench(disk))
            {
                bench.Open();
                var served = CrashTests.CountOf(bench);
                Assert.True(served >= answered, $"{story}: {answered} requests were answered, but {served} are in the store after a restart of the process.");
                // Everything that it serves now counts as answered.
                answered = served;
            }
            disk.Restart((UnsyncedWrites)(answered % 4), answered);
            CrashTests.CheckPrefix(disk, answered, story);
        });
        Assert.True(happened > 20, $"The fault was injected only {happened} times.");
    }

    [Theory]
    [InlineData("LostWrite")]
    [InlineData("MisdirectedWrite")]
    public void AnyWrite_LostOrMisdirected_IsFoundOrLeavesAPrefix(string name)
    {
        int found = 0, prefixes = 0;
        var happened = ForEachCall(Enum.Parse<DiskFault>(name), hasDirect: true, (disk, run, story) =>
        {
            try
            {
                _ = run();
                disk.Restart(UnsyncedWrites.Kept);
                CrashTests.CheckPrefix(disk, answered: 0, story);
                prefixes++;
            }
            catch (Exception damage) when (damage is CorruptStoreException or StoreStoppedException { InnerException: CorruptStoreException })
            {
                found++;
            }
        });
        Assert.True(happened > 10 && found > 0 && prefixes > 0, $"The fault was injected {happened} times, detected {found} times, and left a prefix "
            + $"{prefixes} times.");
    }

    /// <summary>
    /// The sync of a meta page failed and the process ended, as it should. The next process found that meta page in the page cache and took it for
    /// written, but it was never on the disk. The following checkpoint overwrote the other meta page, and power was lost. That left a meta page from
    /// two checkpoints before, whose pages and journal had been reused.
    /// </summary>
    [Fact]
    public void MetaPage_WhoseSyncFailedBeforeARestart_IsOnTheDiskBeforeTheOtherIsOverwritten()
    {
        for (var call = 1; ; call++)
        {
            using var disk = new SimulatedDisk();
            var written = FailMetaPage(disk);
            using (var bench = new StoreBench(disk))
            {
                bench.Open();
                written = Write(bench, written);
                disk.CrashAtCall = disk.Calls + call;
                _ = bench.Store.Checkpoints.RequestAsync();
                bench.RunUntilIdle();
                if (!disk.IsOff)
                {
                    Assert.True(call > 6, $"The checkpoint made only {call} calls.");
                    return;
                }
            }
            disk.Restart((UnsyncedWrites)(call % 4), call);
            using var reopened = new StoreBench(disk);
            reopened.Open();
            Assert.Equal(written, reopened.ReadAllKeys().Count);
            reopened.Store.Pages.Verify();
        }
    }

    /// <summary>
    /// A call that makes something durable fails once, and every later one would succeed. The engine stays down, and makes no further change: a sync that is
    /// tried again succeeds although the data are lost.
    /// </summary>
    /// <param name="operation">The call.</param>
    /// <param name="path">How the path of its file or directory ends.</param>
    /// <param name="nth">Which of these calls fails. A checkpoint syncs its pages first and then its meta page.</param>
    /// <param name="hasDirect">Whether the journal is written with direct I/O. If not, what failed is read back, but lost with the power.</param>
    [Theory]
    [InlineData("Write", ".journal", 1, true)]
    [InlineData("Write", ".journal", 1, false)]
    [InlineData("Write", "/control", 1, true)]
    [InlineData("Write", "/control", 1, false)]
    [InlineData("Write", "/data", 1, true)]
    [InlineData("Write out", "/data", 1, true)]
    [InlineData("Sync", "/data", 1, true)]
    [InlineData("Sync", "/data", 2, true)]
    [InlineData("Sync", "/data", 2, false)]
    [InlineData("Sync", ".journal", 1, true)]
    [InlineData("Sync", ".journal", 1, false)]
    [InlineData("Sync", ".journal", 3, true)]
    [InlineData("Sync directory", "/journal", 1, true)]
    [InlineData("Sync directory", "/journal", 1, false)]
    [InlineData("Resize", ".journal", 1, true)]
    [InlineData("Resize", "/data", 1, true)]
    [InlineData("Create", ".journal", 1, true)]
    [InlineData("Rename", ".journal", 1, true)]
    public void Failure_ThatHappensOnce_KeepsTheEngineDown(string operation, string path, int nth, bool hasDirect)
    {
        using var disk = new SimulatedDisk { HasDirect = hasDirect };
        using var bench = new StoreBench(disk);
        bench.Open();
        var written = Write(bench, 0);
        var calls = 0;
        disk.Fault = call => call.Operation == operation && call.Path.EndsWith(path, StringComparison.Ordinal) && ++calls == nth
            ? hasDirect ? DiskFault.Error : DiskFault.SyncLosesData : DiskFault.None;
        // Until segments were recycled and the file has grown.
        for (var round = 0; round < 8 && calls < nth; round++)
        {
            for (var index = 0; index < 15; index++)
                _ = bench.Submit(request => request.Put(StoreBench.Text($"key-{written++:000}"), StoreBench.Text(new string('x', 1500))));
            bench.Store.Log.WriteControl(bench.Store.Durable.Control with { Generation = (ulong)round + 7 });
            _ = bench.Store.Checkpoints.RequestAsync();
            bench.RunUntilIdle();
        }
        Assert.True(bench.Standalone.Failure.IsCompletedSuccessfully, $"The engine went on after {calls} such calls.");
        bench.CheckStaysDown();
        Assert.Equal(nth, calls);
    }

    private static int FailMetaPage(SimulatedDisk disk)
    {
        using var bench = new StoreBench(disk);
        bench.Open();
        var written = 0;
        for (var checkpoint = 0; checkpoint < 3; checkpoint++)
        {
            written = Write(bench, written);
            bench.Checkpoint();
        }
        written = Write(bench, written);
        var syncs = 0;
        // A checkpoint syncs its pages first and then its meta page.
        disk.Fault = call =>
            call is { Operation: "Sync" } && call.Path.EndsWith("/data", StringComparison.Ordinal) && ++syncs == 2 ? DiskFault.SyncLosesData : DiskFault.None;
        _ = bench.Store.Checkpoints.RequestAsync();
        bench.RunUntilIdle();
        Assert.True(bench.Standalone.Failure.IsCompletedSuccessfully);
        disk.Fault = null;
        return written;
    }

    private static int Write(StoreBench bench, int from)
    {
        for (var index = from; index < from + 15; index++)
            Assert.Equal(
                WriteOutcome.Applied, bench.Write(request => request.Put(StoreBench.Text($"key-{index:000}"), StoreBench.Text(new string('x', 1500)))).Outcome);
        return from + 15;
    }

    /// <summary>Returns how often the fault was injected, since not every call can fail this way.</summary>
    private static int ForEachCall(DiskFault fault, bool hasDirect, Action<SimulatedDisk, Func<(int Answered, Exception? Failure)>, string> runAndCheck)
    {
        using var sound = new SimulatedDisk { HasDirect = hasDirect };
        var operations = new List<string>();
        sound.Fault = call =>
        {
            if (call.Changes)
                operations.Add($"{call.Operation} {call.Path}");
            return DiskFault.None;
        };
        _ = CrashTests.Run(sound, Seed);
        var happened = 0;
        for (var chosen = 1 + ((int)fault % Stride); chosen <= operations.Count; chosen += Stride)
        {
            using var disk = new SimulatedDisk { HasDirect = hasDirect };
            var number = 0;
            disk.Fault = call => call.Changes && ++number == chosen ? fault : DiskFault.None;
            runAndCheck(disk, () =>
            {
                var run = CrashTests.Run(disk, Seed);
                disk.Fault = null;
                return run;
            }, $"KV_SEED={Seed}: {fault} at call {chosen} of {operations.Count}, {operations[chosen - 1]}");
            happened += disk.CountOf(fault);
        }
        return happened;
    }
}
