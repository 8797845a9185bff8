using System.Collections.Immutable;
using KvCluster.Disk;
using KvCluster.Storage.Files;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>
/// The prefix rule (S4): at whichever call power is lost, and whatever becomes of unsynced writes, the reopened store holds the state after a prefix
/// of the requests. Requests are whole, and all that were answered are included.
/// </summary>
public sealed class CrashTests
{
    private const int RequestCount = 120;
    private const string LastKey = "last";

    /// <summary>What becomes of unsynced writes, and whether the journal is written with direct I/O or through the page cache.</summary>
    public static TheoryData<string, bool> Modes
    {
        get
        {
            var modes = new TheoryData<string, bool>();
            foreach (var unsynced in Enum.GetNames<UnsyncedWrites>())
            {
                modes.Add(unsynced, true);
                modes.Add(unsynced, false);
            }
            return modes;
        }
    }

    /// <summary>Those of every change. The others take their turn.</summary>
    public static TheoryData<string, bool> SomeModes => new() { { nameof(UnsyncedWrites.Reordered), true }, { nameof(UnsyncedWrites.Torn), false } };

    public static TheoryData<string, bool> OtherModes
    {
        get
        {
            var modes = new TheoryData<string, bool>();
            foreach (var unsynced in Enum.GetNames<UnsyncedWrites>())
            {
                if (unsynced != nameof(UnsyncedWrites.Reordered))
                    modes.Add(unsynced, true);
                if (unsynced != nameof(UnsyncedWrites.Torn))
                    modes.Add(unsynced, false);
            }
            return modes;
        }
    }

    /// <summary>One mode takes the odd calls and the other one the even calls.</summary>
    [Theory]
    [MemberData(nameof(SomeModes))]
    public void Crash_AtEverySecondCall_LeavesAPrefixWithAllThatWasAnswered(string mode, bool hasDirect) =>
        CrashAtCalls(mode, hasDirect, first: hasDirect ? 1 : 2, stride: 2);

    /// <summary>A long run has fifty seeds, and takes every third call of each.</summary>
    [Theory]
    [MemberData(nameof(Modes))]
    [Trait("Turn", "1")]
    public void Crash_AtEveryCall_LeavesAPrefixWithAllThatWasAnswered(string mode, bool hasDirect) =>
        CrashAtCalls(mode, hasDirect, first: 1, Seeds.IsLong && Seeds.Given is null ? 3 : 1);

    [Theory]
    [MemberData(nameof(Modes))]
    [Trait("Turn", "1")]
    public void Crash_InRecoveryAndInTheNext_LeavesAPrefixWithAllThatWasAnswered(string mode, bool hasDirect) => Seeds.Run(1, random =>
    {
        var unsynced = Enum.Parse<UnsyncedWrites>(mode);
        var seed = random.Next();
        var calls = CallsOf(hasDirect, seed);
        // Late in the run there are checkpoints and recycled segments.
        int[] points = Seeds.IsLong ? [.. Enumerable.Range(0, 4).Select(_ => random.Next(1, calls + 1))] : [calls / 2, calls - 3, calls];
        foreach (var call in points)
        {
            using var crashed = Crashed(hasDirect, seed, call, out var answered);
            crashed.Restart(unsynced, call);
            var recoveryCalls = CallsOfRecovery(crashed);
            for (var first = 1; first <= recoveryCalls; first++)
            {
                using var disk = crashed.Copy();
                CrashInRecovery(disk, first);
                disk.Restart(unsynced, first);
                var nextCalls = CallsOfRecovery(disk);
                for (var pair = 0; pair < (Seeds.IsLong ? 3 : 1); pair++)
                {
                    var second = 1 + random.Next(nextCalls);
                    using var again = disk.Copy();
                    CrashInRecovery(again, second);
                    again.Restart(unsynced, second);
                    CheckPrefix(again, answered, $"{mode}, call {call} of {calls}, then call {first} of {recoveryCalls} of the recovery, then call {second} of "
                        + $"{nextCalls} of the next one");
                }
            }
        }
    });

    /// <summary>
    /// Makes requests in bursts with four checkpoints and a reopen in between, at moments chosen by the seed. Ends when power is lost or the disk fails.
    /// </summary>
    /// <returns>How many requests were answered, and what kept the store from opening or ended it, after which it has changed nothing any more.</returns>
    internal static (int Answered, Exception? Failure) Run(SimulatedDisk disk, int seed)
    {
        var random = new Random(seed);
        var checkpoints = Enumerable.Range(0, 4).Select(part => (25 * part) + random.Next(8, 30)).ToArray();
        var reopenedAt = random.Next(50, 75);
        var answers = new List<Task<WriteResult>>();
        Exception? failure = null;
        using var bench = new StoreBench(disk, seed);
        try
        {
            bench.Open();
            for (var index = 0; index < RequestCount && !disk.IsOff && !bench.Standalone.Failure.IsCompleted; index++)
            {
                var request = index;
                answers.Add(bench.Submit(target => Fill(target, request)));
                for (var step = 0; step < 3; step++)
                    bench.Step();
                if (checkpoints.Contains(index))
                    _ = bench.Store.Checkpoints.RequestAsync();
                if (index != reopenedAt || disk.IsOff)
                    continue;
                bench.RunUntilIdle();
                if (bench.Standalone.Failure.IsCompleted)
                    break;
                bench.Close();
                bench.Open();
            }
            bench.RunUntilIdle();
            if (bench.Standalone.Failure.IsCompleted)
            {
                failure = StoreBench.Answer(bench.Standalone.Failure);
                if (!disk.IsOff)
                    bench.CheckStaysDown();
            }
        }
        catch (Exception opening) when (opening is SimulatedCrashException or StorageIoException)
        {
            failure = opening;
        }
        var answered = answers.TakeWhile(answer => answer is { IsCompletedSuccessfully: true }
            && StoreBench.Answer(answer).Outcome == WriteOutcome.Applied).Count();
        Assert.DoesNotContain(answers.Skip(answered), answer => answer.IsCompleted && StoreBench.Answer(answer).Outcome == WriteOutcome.Applied);
        return (answered, failure);
    }

    private static void CrashAtCalls(string mode, bool hasDirect, int first, int stride) => Seeds.Run(1, random =>
    {
        var unsynced = Enum.Parse<UnsyncedWrites>(mode);
        var seed = random.Next();
        var calls = CallsOf(hasDirect, seed);
        for (var call = first + random.Next(stride); call <= calls; call += stride)
        {
            using var disk = Crashed(hasDirect, seed, call, out var answered);
            disk.Restart(unsynced, call);
            CheckPrefix(disk, answered, $"{mode}, call {call} of {calls}");
        }
    });

    /// <summary>The number of calls of a run without a crash.</summary>
    private static int CallsOf(bool hasDirect, int seed)
    {
        using var disk = new SimulatedDisk { HasDirect = hasDirect };
        Assert.Equal((RequestCount, null), Run(disk, seed));
        Assert.True(disk.Calls > 100, $"The run made only {disk.Calls} calls.");
        return disk.Calls;
    }

    /// <summary>A disk that has lost power at a call of a run.</summary>
    private static SimulatedDisk Crashed(bool hasDirect, int seed, int call, out int answered)
    {
        var disk = new SimulatedDisk { HasDirect = hasDirect, CrashAtCall = call };
        (answered, _) = Run(disk, seed);
        Assert.True(disk.IsOff, $"Call {call} was not reached.");
        return disk;
    }

    private static int CallsOfRecovery(SimulatedDisk crashed)
    {
        using var disk = crashed.Copy();
        Reopen(disk);
        Assert.True(disk.Calls > 2, $"The recovery made only {disk.Calls} calls.");
        return disk.Calls;
    }

    private static void CrashInRecovery(SimulatedDisk disk, int call)
    {
        disk.CrashAtCall = disk.Calls + call;
        Reopen(disk);
        Assert.True(disk.IsOff, $"Call {call} of the recovery was not reached.");
    }

    private static void Reopen(SimulatedDisk disk)
    {
        using var bench = new StoreBench(disk);
        try
        {
            bench.Open();
        }
        catch (SimulatedCrashException)
        {
            // Power was lost during recovery, which this test is about.
        }
    }

    private static void Fill(WriteRequest request, int index)
    {
        request.Put(StoreBench.Text($"key-{index % 9}"), StoreBench.Text($"value-{index}-{new string('x', 700 * (index % 5))}"));
        if (index % 3 == 0)
            request.Delete(StoreBench.Text($"key-{(index + 4) % 9}"));
        if (index % 11 == 0)
            request.DeleteRange(StoreBench.Text("key-2"), StoreBench.Text("key-7"));
        foreach (var (set, member, isAdded) in MemberChanges(index))
        {
            if (isAdded)
                request.SetAdd(StoreBench.Text(set), StoreBench.Text(member));
            else
                request.SetRemove(StoreBench.Text(set), StoreBench.Text(member));
        }
        request.Put(StoreBench.Text(LastKey), StoreBench.Text($"{index}"));
        if (index % 4 > 0)
            return;
        // What depends on the state or the time, of which the record has the outcome.
        request.WantsResults = true;
        request.Increment(StoreBench.Text("count"), 3);
        request.Put(StoreBench.Text("numbered/"), StoreBench.Text($"{index}"), new PutTerms(0, 0, IsNumbered: true));
        request.Put(StoreBench.Text("expiring"), StoreBench.Text($"{index}"), new PutTerms(1UL << 40, 0, IsNumbered: false));
        request.Touch(StoreBench.Text("count"), 1UL << 40);
        request.Get(StoreBench.Text("count"));
    }

    /// <summary>One set grows to a tree and is removed, member by member, again and again. In another there is a member now and then.</summary>
    private static IEnumerable<(string Set, string Member, bool IsAdded)> MemberChanges(int index)
    {
        yield return ("large", $"member-{(index % 12) + 10}-{new string('m', 250)}", index / 12 % 2 == 0);
        yield return ("small", $"member-{index % 5}", index % 4 == 0);
    }

    /// <summary>The number of requests in the state that readers see.</summary>
    internal static int CountOf(StoreBench bench) =>
        bench.Read(LastKey) is { } last ? int.Parse(last, System.Globalization.CultureInfo.InvariantCulture) + 1 : 0;

    internal static void CheckPrefix(SimulatedDisk disk, int answered, string story)
    {
        using var bench = new StoreBench(disk);
        bench.Open();
        var count = CountOf(bench);
        Assert.True(count >= answered, $"{story}: {answered} requests were answered, but {count} are in the store.");
        var expected = new SortedDictionary<string, string>(StringComparer.Ordinal);
        var sets = new SortedDictionary<string, ImmutableSortedSet<string>>(StringComparer.Ordinal);
        for (var index = 0; index < count; index++)
        {
            expected[$"key-{index % 9}"] = $"value-{index}-{new string('x', 700 * (index % 5))}";
            if (index % 3 == 0)
                expected.Remove($"key-{(index + 4) % 9}");
            if (index % 11 == 0)
            {
                for (var key = 2; key < 7; key++)
                    expected.Remove($"key-{key}");
            }
            expected[LastKey] = $"{index}";
            if (index % 4 == 0)
            {
                expected["count"] = $"{3 * ((index / 4) + 1)}";
                expected[$"numbered/{(index / 4) + 1:d20}"] = $"{index}";
                expected["expiring"] = $"{index}";
            }
            foreach (var (set, member, isAdded) in MemberChanges(index))
            {
                var members = sets.GetValueOrDefault(set, []);
                sets[set] = isAdded ? members.Add(member) : members.Remove(member);
            }
        }
        Assert.Equal(expected, bench.ReadAllKeys());
        Assert.Equal(sets.Where(set => !set.Value.IsEmpty).Select(set => $"{set.Key}: {string.Join(' ', set.Value)}"), bench.ReadAllSets()
            .Select(set => $"{set.Key}: {set.Value}"));
        Assert.Equal(WriteOutcome.Applied, bench.Write(request => request.Put("after"u8, "1"u8)).Outcome);
    }
}
