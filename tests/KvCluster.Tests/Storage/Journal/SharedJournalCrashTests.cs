using KvCluster.Disk;
using KvCluster.Storage.Context;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Shared;
using KvCluster.Tests.Storage.Store;

namespace KvCluster.Tests.Storage.Journal;

/// <summary>
/// Stores with a shared journal, whose power is lost, or whose process dies, at any call to the disk: each has the content of a prefix of its requests, with
/// all that were answered, once the shared journal is settled and the stores are opened. So it is if that is killed at any call, too, and repeated.
/// </summary>
public sealed class SharedJournalCrashTests
{
    private const int Stores = 3;

    /// <summary>What a run does: how many requests it makes, of which size, and with which segments.</summary>
    private static readonly Load Short = new(36, static index => 700 * (index % 5), StoreBench.SmallOptions);

    /// <summary>One that needs each file of the shared journal more than once.</summary>
    private static readonly Load Filling = new(
        150, static index => index % 3 == 0 ? 50_000 : 25_000, StoreBench.SmallOptions with { SegmentBytesMin = 64 << 10, SegmentBytesMax = 256 << 10 });

    public static TheoryData<string, int> Modes
    {
        get
        {
            var modes = new TheoryData<string, int>();
            foreach (var unsynced in Enum.GetNames<UnsyncedWrites>())
            {
                modes.Add(unsynced, 1);
                modes.Add(unsynced, 2);
            }
            return modes;
        }
    }

    [Theory]
    [MemberData(nameof(Modes))]
    public void PowerLoss_AtAnyCall_LeavesAPrefixWithAllThatWasAnswered(string mode, int lanes) =>
        LosePower(Short, mode, lanes, stride: Seeds.IsLong ? 3 : 4);

    [Theory]
    [MemberData(nameof(Modes))]
    public void PowerLoss_WhileFilesAreUsedAgain_LeavesAPrefixWithAllThatWasAnswered(string mode, int lanes) =>
        LosePower(Filling, mode, lanes, stride: Seeds.IsLong ? 3 : 30);

    /// <summary>A process died: what it wrote is in the page cache, and once it is settled a power loss does not matter any more.</summary>
    [Theory]
    [InlineData(1)]
    [InlineData(2)]
    public void EndOfTheProcess_AtAnyCall_LeavesAPrefixWithAllThatWasAnswered(int lanes) => Seeds.Run(1, random =>
    {
        var seed = random.Next();
        var calls = CallsOf(Short, seed, lanes);
        var stride = Seeds.IsLong ? 3 : 4;
        for (var call = 1 + random.Next(stride); call <= calls; call += stride)
        {
            using var disk = Crashed(Short, seed, lanes, call, out var answered, out var story, endsOnlyProcess: true);
            disk.RestartProcess();
            story = $"the process ended at {story}";
            if (call % 2 == 0)
            {
                SharedBench.Settle(disk);
                disk.Restart(UnsyncedWrites.Dropped);
                story += ", and power was lost when the shared journal was settled";
            }
            Check(disk, Short, answered, story);
        }
    });

    [Theory]
    [MemberData(nameof(Modes))]
    public void PowerLoss_AtAnyCallOfARecovery_LeavesWhatOneRecoveryWouldHaveFound(string mode, int lanes) => Seeds.Run(1, random =>
    {
        var unsynced = Enum.Parse<UnsyncedWrites>(mode);
        var seed = random.Next();
        var calls = CallsOf(Short, seed, lanes);
        foreach (var call in (int[])[calls / 2, calls * 3 / 4])
        {
            using var crashed = Crashed(Short, seed, lanes, call, out var answered, out var story);
            crashed.Restart(unsynced, call);
            int[] found;
            using (var whole = crashed.Copy())
                found = Check(whole, Short, answered, $"{mode}, {story}");
            var recoveryCalls = CallsOfRecovery(crashed);
            for (var second = 1 + random.Next(2); second <= recoveryCalls; second += Seeds.IsLong ? 1 : 2)
            {
                using var disk = crashed.Copy();
                disk.CrashAtCall = second;
                Recover(disk);
                Assert.True(disk.IsOff, $"Call {second} of the recovery was not reached.");
                disk.Restart(unsynced, second);
                Assert.Equal(found, Check(disk, Short, answered, $"{mode}, {story}, then call {second} of {recoveryCalls} of the recovery"));
            }
        }
    });

    /// <summary>A node stops while two files are needed. They are removed one after the other, and one of them may be left.</summary>
    [Fact]
    public void PowerLoss_AtAnyCallOfAStop_LosesNothing()
    {
        using var sound = new SimulatedDisk();
        var requests = Stop(sound, call: int.MaxValue);
        for (var call = 1; ; call++)
        {
            using var disk = new SimulatedDisk();
            Assert.Equal(requests, Stop(disk, call));
            if (!disk.IsOff)
            {
                Assert.InRange(call, 8, 200);
                return;
            }
            disk.Restart((UnsyncedWrites)(call % 4), call);
            Check(disk, Filling with { ValueBytes = static _ => 50_000 }, [requests, requests, requests], $"call {call} of a stop");
        }
    }

    /// <summary>Two blocks are on their way, and only the later one arrives. The earlier one was not durable, so nobody has lost anything.</summary>
    [Theory]
    [InlineData(nameof(UnsyncedWrites.Dropped))]
    [InlineData(nameof(UnsyncedWrites.Torn))]
    public void PowerLoss_OnlyTheLaterOfTwoBlocksDurable_LosesNothing(string unsynced)
    {
        using var bench = new SharedBench(lanes: 2, options: StoreBench.SmallOptions with { SegmentBytesMin = 64 << 10 }).Open();
        bench.WriteTogether(100, 0, 1, 2);
        var (isFirst, before) = (true, bench.Shared.Blocks);
        bench.Disk.DuringWrite = path =>
        {
            if (!isFirst || !path.StartsWith($"{SharedBench.Root}/shared/", StringComparison.Ordinal))
                return;
            isFirst = false;
            _ = bench[0].SubmitNext(100);
            _ = bench[1].SubmitNext(100);
            bench.RunButSyncs();
            bench.Disk.CrashAtCall = bench.Disk.Calls + 1;
        };
        Task<WriteResult>[] answers = [bench[0].SubmitNext(100), bench[1].SubmitNext(100)];
        bench.RunToJournals();
        bench.RunButSyncs();
        Assert.True(bench.Disk.IsOff && bench.Shared.Blocks == before + 2, $"There were {bench.Shared.Blocks - before} blocks.");
        Assert.All(answers, static answer => Assert.False(answer.IsCompletedSuccessfully && StoreBench.Answer(answer).Outcome == WriteOutcome.Applied));
        bench.Die();
        bench.Disk.Restart(Enum.Parse<UnsyncedWrites>(unsynced), seed: 3);
        Assert.Equal([before, before + 2], SharedBench.BlocksOf(bench.Disk)[^2..].Select(static found => found.Block.Number));
        bench.Open();
        Assert.Empty(bench.Replay!.Losses);
        Assert.Equal([1, 1, 1], bench.All.Select(static store => store.Count));
    }

    /// <summary>The test's load is such that blocks have several stores' records, and files are used again.</summary>
    [Theory]
    [InlineData(1)]
    [InlineData(2)]
    public void Load_WithoutAFailure_WritesBlocksOfSeveralStoresAndUsesFilesAgain(int lanes)
    {
        using var disk = new SimulatedDisk();
        var (blocks, writes, neededFrom) = (0, 0, 0ul);
        Run(disk, Filling, seed: 1, lanes, bench =>
        {
            foreach (var (path, at, block) in SharedBench.BlocksOf(disk))
            {
                blocks++;
                writes += SharedBlock.ReadDirectory(disk.ReadAll(path).AsMemory(at + SharedBlock.HeaderBytes, block.DirectoryBytes))!.Count;
            }
            foreach (var path in SharedBench.FilesOf(disk))
            {
                Assert.True(SharedFile.TryReadHeader(disk.ReadAll(path).AsSpan(0, SharedFile.HeaderBytes), path, out _, out var needed));
                neededFrom = Math.Max(neededFrom, needed);
            }
            Assert.InRange(SharedBench.FilesOf(disk).Count(), 2, SharedJournal.FilesMax);
        });
        Assert.True(writes > 2 * blocks && blocks > 5, $"There are {blocks} blocks with {writes} writes.");
        Assert.True(neededFrom > 3, $"The segments have only what is before block {neededFrom}.");
        Assert.False(disk.DirectoryExists($"{SharedBench.Root}/shared"));
        Assert.Empty(disk.OpenPaths);
    }

    private static void LosePower(Load load, string mode, int lanes, int stride) => Seeds.Run(1, random =>
    {
        var unsynced = Enum.Parse<UnsyncedWrites>(mode);
        var seed = random.Next();
        var calls = CallsOf(load, seed, lanes);
        for (var call = 1 + random.Next(stride); call <= calls; call += stride)
        {
            using var disk = Crashed(load, seed, lanes, call, out var answered, out var story);
            disk.Restart(unsynced, call);
            Check(disk, load, answered, $"{mode}, {story}");
        }
    });

    /// <summary>
    /// Makes requests of random stores, with checkpoints and a reopened store in between, at moments chosen by the seed, and stops. Ends when power is lost.
    /// </summary>
    /// <returns>How many requests of each store were answered.</returns>
    private static int[] Run(SimulatedDisk disk, Load load, int seed, int lanes, Action<SharedBench>? beforeStop = null)
    {
        var random = new Random(seed);
        var (answered, opened) = (new int[Stores], new List<(int Index, SharedBenchStore Store)>());
        var bench = new SharedBench(disk, seed, lanes, Stores, load.Options);
        try
        {
            bench.Open();
            opened.AddRange(bench.All.Index());
            for (var index = 0; index < load.Requests && !disk.IsOff; index++)
            {
                var store = random.Next(Stores);
                _ = bench[store].SubmitNext(load.ValueBytes);
                for (var steps = random.Next(8); steps > 0; steps--)
                    bench.Step();
                if (index % 12 == 11)
                    bench.RunUntilIdle();
                if (random.Next(14) == 0)
                    _ = bench[store].Store.Checkpoints.RequestAsync();
                if (index != load.Requests / 2 || disk.IsOff)
                    continue;
                bench.RunUntilIdle();
                bench.CloseStore(store);
                opened.Add((store, bench.OpenStore(store)));
                bench.RunUntilIdle();
            }
            bench.RunUntilIdle();
            beforeStop?.Invoke(bench);
            bench.Stop();
        }
        catch (Exception ending) when (disk.IsOff && ending is SimulatedCrashException or StoreStoppedException)
        {
            // Power was lost, which this test is about.
        }
        finally
        {
            bench.Die();
        }
        foreach (var (index, store) in opened)
        {
            answered[index] = Math.Max(answered[index], store.Answered);
            Assert.True(store.IsAnsweredInOrder, $"Store {index} has answered a request before an earlier one.");
        }
        return answered;
    }

    /// <summary>Writes until two files are full of what is needed, and stops. Power is lost at a call of the stop. Returns each store's requests.</summary>
    private static int Stop(SimulatedDisk disk, int call)
    {
        var (bench, requests) = (new SharedBench(disk, lanes: 1, options: Filling.Options).Open(), 0);
        while (requests == 0 || SharedBench.BlocksOf(disk)[^1].Path == $"{SharedBench.Root}/shared/0")
        {
            bench.WriteTogether(50_000, bench.RunButSyncs, 0, 1, 2);
            requests++;
        }
        // The background does not come to the first one before it is too late.
        bench.Syncs.Clear();
        disk.CrashAtCall = call == int.MaxValue ? 0 : disk.Calls + call;
        try
        {
            bench.Stop();
        }
        catch (SimulatedCrashException)
        {
            // Power was lost, which this test is about.
        }
        bench.Die();
        return requests;
    }

    /// <summary>The number of calls of a run without a crash.</summary>
    private static int CallsOf(Load load, int seed, int lanes)
    {
        using var disk = new SimulatedDisk();
        Assert.Equal(load.Requests, Run(disk, load, seed, lanes).Sum());
        return disk.Calls;
    }

    /// <summary>A disk that has lost power at a call of a run.</summary>
    private static SimulatedDisk Crashed(Load load, int seed, int lanes, int call, out int[] answered, out string story, bool endsOnlyProcess = false)
    {
        var (disk, last) = (new SimulatedDisk { CrashAtCall = call, EndsOnlyProcess = endsOnlyProcess }, "");
        disk.Refuse = (operation, path) =>
        {
            last = $"{operation} {path}";
            return null;
        };
        answered = Run(disk, load, seed, lanes);
        Assert.True(disk.IsOff, $"Call {call} was not reached.");
        disk.Refuse = null;
        story = $"call {call}, {last}";
        return disk;
    }

    private static int CallsOfRecovery(SimulatedDisk crashed)
    {
        using var disk = crashed.Copy();
        Recover(disk);
        return disk.Calls;
    }

    private static void Recover(SimulatedDisk disk)
    {
        var bench = new SharedBench(disk);
        try
        {
            bench.Open();
        }
        catch (SimulatedCrashException)
        {
            // Power was lost during recovery, which this test is about.
        }
        bench.Die();
    }

    /// <summary>Settles and opens, and goes on. Returns how many requests each store has.</summary>
    private static int[] Check(SimulatedDisk disk, Load load, int[] answered, string story)
    {
        using var bench = new SharedBench(disk, options: load.Options);
        try
        {
            bench.Open();
        }
        catch (Exception refusal) when (refusal is CorruptStoreException or StorageIoException)
        {
            throw new Xunit.Sdk.XunitException($"{story}: {refusal.Message}", refusal);
        }
        Assert.Empty(bench.Replay!.Losses);
        var counts = new int[Stores];
        for (var store = 0; store < Stores; store++)
        {
            counts[store] = bench[store].Count;
            Assert.True(counts[store] >= answered[store], $"{story}: store {store} has answered {answered[store]} requests, but has {counts[store]}.");
            bench[store].CheckContent(load.ValueBytes, story);
        }
        // It goes on, and loses power once more.
        for (var store = 0; store < Stores; store++)
            _ = bench[store].SubmitNext(load.ValueBytes);
        bench.RunUntilIdle();
        Assert.Equal(counts.Select(static count => count + 1), bench.All.Select(static store => store.Answered));
        bench.Die();
        disk.Restart(UnsyncedWrites.Dropped);
        bench.Open();
        Assert.Equal(counts.Select(static count => count + 1), bench.All.Select(static store => store.Count));
        return counts;
    }

    /// <param name="Requests">How many requests a run makes, of all stores together.</param>
    /// <param name="ValueBytes">The length of a request's value.</param>
    /// <param name="Options">The stores' bounds.</param>
    private sealed record Load(int Requests, Func<int, int> ValueBytes, StoreOptions Options);
}
