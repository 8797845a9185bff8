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

    public static TheoryData<string> Modes => new(Enum.GetNames<UnsyncedWrites>());

    [Theory]
    [MemberData(nameof(Modes))]
    public void Crash_AtEveryCall_LeavesAPrefixWithAllThatWasAnswered(string mode)
    {
        var unsynced = Enum.Parse<UnsyncedWrites>(mode);
        var calls = CallsOf(disk => Run(disk, out _));
        Assert.True(calls > 100, $"The run made only {calls} calls.");
        for (var call = 1; call <= calls; call++)
        {
            using var disk = new SimulatedDisk { CrashAtCall = call };
            Run(disk, out var answered);
            Assert.True(disk.IsOff, $"Call {call} of {calls} was not reached.");
            disk.Restart(unsynced, call);
            CheckPrefix(disk, answered, $"{mode}, call {call}");
        }
    }

    [Theory]
    [MemberData(nameof(Modes))]
    public void Crash_InRecoveryAndInTheNext_LeavesAPrefixWithAllThatWasAnswered(string mode)
    {
        var unsynced = Enum.Parse<UnsyncedWrites>(mode);
        var calls = CallsOf(disk => Run(disk, out _));
        // Late in the run, when there are checkpoints and recycled segments.
        foreach (var call in new[] { calls / 2, calls - 3, calls })
        {
            using var crashed = new SimulatedDisk { CrashAtCall = call };
            Run(crashed, out var answered);
            crashed.Restart(unsynced, call);
            for (var recoveryCall = 1; ; recoveryCall++)
            {
                using var disk = crashed.Copy();
                disk.CrashAtCall = disk.Calls + recoveryCall;
                Reopen(disk);
                if (!disk.IsOff)
                    break;
                disk.Restart(unsynced, recoveryCall);
                disk.CrashAtCall = disk.Calls + 1 + (recoveryCall / 2);
                Reopen(disk);
                disk.Restart(unsynced, recoveryCall);
                CheckPrefix(disk, answered, $"{mode}, call {call}, recovery call {recoveryCall}");
            }
        }
    }

    private static int CallsOf(Action<SimulatedDisk> run)
    {
        using var disk = new SimulatedDisk();
        run(disk);
        return disk.Calls;
    }

    /// <summary>Makes requests in bursts with four checkpoints and a reopen in between. Ends when power is lost or the disk fails.</summary>
    internal static void Run(SimulatedDisk disk, out int answered)
    {
        var answers = new List<Task<WriteResult>>();
        using var bench = new StoreBench(disk, seed: 7);
        try
        {
            bench.Open();
            for (var index = 0; index < RequestCount && !disk.IsOff && !bench.Standalone.Failure.IsCompleted; index++)
            {
                var request = index;
                answers.Add(bench.Submit(target => Fill(target, request)));
                for (var step = 0; step < 3; step++)
                    bench.Step();
                if (index is 20 or 45 or 70 or 95)
                    _ = bench.Store.Checkpoints.RequestAsync();
                if (index != 60 || disk.IsOff)
                    continue;
                bench.RunUntilIdle();
                if (bench.Standalone.Failure.IsCompleted)
                    break;
                bench.Close();
                bench.Open();
            }
            bench.RunUntilIdle();
        }
        catch (Exception failure) when (failure is SimulatedCrashException or StorageIoException)
        {
            // Power was lost or the disk failed while the store was opening.
        }
        answered = answers.TakeWhile(answer => answer is { IsCompletedSuccessfully: true } && StoreBench.Answer(answer).Outcome == WriteOutcome.Applied).Count();
        Assert.DoesNotContain(answers.Skip(answered), answer => answer.IsCompleted && StoreBench.Answer(answer).Outcome == WriteOutcome.Applied);
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
    }

    /// <summary>One set grows to a tree and is removed, member by member, again and again. In another there is a member now and then.</summary>
    private static IEnumerable<(string Set, string Member, bool IsAdded)> MemberChanges(int index)
    {
        yield return ("large", $"member-{(index % 12) + 10}-{new string('m', 250)}", index / 12 % 2 == 0);
        yield return ("small", $"member-{index % 5}", index % 4 == 0);
    }

    /// <summary>The number of requests in the state that readers see.</summary>
    internal static int CountOf(StoreBench bench) => bench.Read(LastKey) is { } last ? int.Parse(last, System.Globalization.CultureInfo.InvariantCulture) + 1 : 0;

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
            foreach (var (set, member, isAdded) in MemberChanges(index))
            {
                var members = sets.GetValueOrDefault(set, []);
                sets[set] = isAdded ? members.Add(member) : members.Remove(member);
            }
        }
        Assert.Equal(expected, bench.ReadAllKeys());
        Assert.Equal(sets.Where(set => !set.Value.IsEmpty).Select(set => $"{set.Key}: {string.Join(' ', set.Value)}"), bench.ReadAllSets().Select(set => $"{set.Key}: {set.Value}"));
        Assert.Equal(WriteOutcome.Applied, bench.Write(request => request.Put("after"u8, "1"u8)).Outcome);
    }
}
