using KvCluster.Disk;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Sessions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>
/// A disk that errs at one call, whichever it is, and then works again, under the run of <see cref="CrashTests"/>: what says that it failed loses nothing that
/// was answered, and what says that it succeeded and did something else is found, or leaves a prefix, and is never served.
/// </summary>
public sealed class DiskFaultTests
{
    /// <summary>Every seventh call of the run, beginning with another one in each test: all of them are for the nightly run.</summary>
    private static readonly int Stride = Environment.GetEnvironmentVariable("KV_LONG") == "1" ? 1 : 7;

    [Theory]
    [InlineData("Error", true)]
    [InlineData("ShortWrite", true)]
    [InlineData("SyncLosesData", true)]
    [InlineData("ShortWrite", false)]
    [InlineData("SyncLosesData", false)]
    public void AnyCall_Fails_EndsTheEngineAndLosesNothingThatWasAnswered(string name, bool hasDirect)
    {
        var fault = Enum.Parse<DiskFault>(name);
        var happened = ForEachCall(fault, (disk, run, story) =>
        {
            disk.HasDirect = hasDirect;
            var answered = run();
            // The process starts again first, on what the running machine shows; then the power goes.
            using (var bench = new StoreBench(disk))
            {
                bench.Open();
                var served = CrashTests.CountOf(bench);
                Assert.True(served >= answered, $"{story}: {answered} requests were answered, {served} are there after a restart of the process.");
                // What it serves now counts as answered.
                answered = served;
            }
            disk.Restart((UnsyncedWrites)(answered % 4), answered);
            CrashTests.CheckPrefix(disk, answered, story);
        });
        Assert.True(happened > 20, $"It happened {happened} times only.");
    }

    [Theory]
    [InlineData("LostWrite")]
    [InlineData("MisdirectedWrite")]
    public void AnyWrite_IsNotWhereItShouldBe_IsFoundOrLeavesAPrefix(string name)
    {
        int found = 0, prefixes = 0;
        var happened = ForEachCall(Enum.Parse<DiskFault>(name), (disk, run, story) =>
        {
            try
            {
                _ = run();
                disk.Restart(UnsyncedWrites.Kept);
                CrashTests.CheckPrefix(disk, answered: 0, story);
                prefixes++;
            }
            catch (CorruptStoreException)
            {
                found++;
            }
        });
        Assert.True(happened > 10 && found > 0 && prefixes > 0, $"It happened {happened} times, was found {found} times, left a prefix {prefixes} times.");
    }

    /// <summary>
    /// The sync of a meta page failed and the process ended, as it should; the next one found that meta page in the system's cache, where it was taken for
    /// written, and never on the disk. With the following checkpoint, which overwrites the other meta page, the power went: what was left was a meta page from
    /// two checkpoints before, whose pages and journal had been used again.
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
                _ = bench.Store.CheckpointAsync();
                bench.RunUntilIdle();
                if (!disk.IsOff)
                {
                    Assert.True(call > 6, $"The checkpoint makes {call} calls only.");
                    return;
                }
            }
            disk.Restart((UnsyncedWrites)(call % 4), call);
            using var reopened = new StoreBench(disk);
            reopened.Open();
            Assert.Equal(written, reopened.ReadAllKeys().Count);
            reopened.Store.Verify();
        }
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
        // A checkpoint syncs its pages, and then its meta page.
        disk.Fault = call => call is { Operation: "Sync" } && call.Path.EndsWith("/data", StringComparison.Ordinal) && ++syncs == 2 ? DiskFault.SyncLosesData : DiskFault.None;
        _ = bench.Store.CheckpointAsync();
        bench.RunUntilIdle();
        Assert.True(bench.Standalone.Failure.IsCompletedSuccessfully);
        disk.Fault = null;
        return written;
    }

    private static int Write(StoreBench bench, int from)
    {
        for (var index = from; index < from + 15; index++)
            Assert.Equal(WriteOutcome.Applied, bench.Write(request => request.Put(StoreBench.Text($"key-{index:000}"), StoreBench.Text(new string('x', 1500)))).Outcome);
        return from + 15;
    }

    /// <summary>How often it happened: a call may be one that cannot go wrong so.</summary>
    private static int ForEachCall(DiskFault fault, Action<SimulatedDisk, Func<int>, string> runAndCheck)
    {
        using var sound = new SimulatedDisk();
        var last = 0;
        sound.Fault = call =>
        {
            last += call.Changes ? 1 : 0;
            return DiskFault.None;
        };
        CrashTests.Run(sound, out _);
        var happened = 0;
        for (var chosen = 1 + ((int)fault % Stride); chosen <= last; chosen += Stride)
        {
            using var disk = new SimulatedDisk();
            var number = 0;
            disk.Fault = call => call.Changes && ++number == chosen ? fault : DiskFault.None;
            runAndCheck(disk, () =>
            {
                CrashTests.Run(disk, out var answered);
                disk.Fault = null;
                return answered;
            }, $"{fault} at call {chosen} of {last}");
            happened += disk.CountOf(fault);
        }
        return happened;
    }
}
