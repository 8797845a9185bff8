using System.Globalization;
using KvCluster.Disk;
using KvCluster.Storage.Context;
using KvCluster.Storage.Files;
using KvCluster.Storage.Sessions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>
/// The prefix rule (S4) for the delete of a large set, which is made in parts: at whichever call power is lost, the reopened store has the members from one on,
/// without those whose deletion was answered, and nothing else has changed. The rest is deleted afterwards.
/// </summary>
public sealed class SetDeleteCrashTests
{
    private const int Members = 200;

    // What the parts leave alone: a set before it, one behind it, and values of the same key and of a neighbour.
    private const string Before = "deleted", Set = "deleted set", Behind = "deleted set 2", BesideMembers = "a b";
    private static readonly StoreOptions Options = StoreBench.SmallOptions with { RangeLeavesMax = 1, RangeLeavesUnreadMax = 1 };

    [Theory]
    [MemberData(nameof(CrashTests.OtherModes), MemberType = typeof(CrashTests))]
    [Trait("Turn", "4")]
    public void Crash_AtEveryCallOfADeleteInParts_InOtherModes_LeavesASuffixOfTheMembersAndTheRestUntouched(string mode, bool hasDirect) =>
        Crash_AtEveryCallOfADeleteInParts_LeavesASuffixOfTheMembersAndTheRestUntouched(mode, hasDirect);

    [Theory]
    [MemberData(nameof(CrashTests.SomeModes), MemberType = typeof(CrashTests))]
    public void Crash_AtEveryCallOfADeleteInParts_LeavesASuffixOfTheMembersAndTheRestUntouched(string mode, bool hasDirect) => Seeds.Run(1, random =>
    {
        var unsynced = Enum.Parse<UnsyncedWrites>(mode);
        var seed = random.Next();
        using var loaded = Loaded(hasDirect, seed);
        int calls;
        using (var disk = loaded.Copy())
        {
            var before = disk.Calls;
            var (parts, deleted) = Delete(disk, seed);
            Assert.Equal(Members, deleted);
            Assert.InRange(parts, 5, Members);
            calls = disk.Calls - before;
            Check(disk, deleted, "without a crash");
        }
        var cut = 0;
        for (var call = 1; call <= calls; call++)
        {
            using var disk = loaded.Copy();
            disk.CrashAtCall = disk.Calls + call;
            var (_, deleted) = Delete(disk, seed);
            Assert.True(disk.IsOff, $"Call {call} was not reached.");
            disk.Restart(unsynced, call);
            cut += Check(disk, deleted, $"{mode}, call {call} of {calls}") is > 0 and < Members ? 1 : 0;
        }
        Assert.True(cut > calls / 4, $"Only {cut} of {calls} crashes were between the parts.");
    });

    /// <summary>A disk with the sets, in a data file and not only in the journal.</summary>
    private static SimulatedDisk Loaded(bool hasDirect, int seed)
    {
        var disk = new SimulatedDisk { HasDirect = hasDirect };
        using var bench = new StoreBench(disk, seed, Options);
        bench.Open();
        bench.Write(request =>
        {
            for (var member = 0; member < Members; member++)
                request.SetAdd(StoreBench.Text(Set), Member(member));
            foreach (var beside in (string[])[Before, Behind])
            {
                request.SetAdd(StoreBench.Text(beside), "a"u8);
                request.SetAdd(StoreBench.Text(beside), "b"u8);
            }
            request.Put(StoreBench.Text(Set), "value"u8);
        });
        bench.Checkpoint();
        return disk.Copy();
    }

    /// <summary>Deletes the set part by part, with a checkpoint now and then, until it is gone or power is lost.</summary>
    /// <returns>How many parts and members were answered.</returns>
    private static (int Parts, int Deleted) Delete(SimulatedDisk disk, int seed)
    {
        var (parts, deleted) = (0, 0);
        using var bench = new StoreBench(disk, seed, Options);
        try
        {
            bench.Open();
            for (var isPartial = true; isPartial && !disk.IsOff;)
            {
                var answer = bench.Submit(request => request.SetDelete(StoreBench.Text(Set)));
                if (parts % 3 == 1)
                    _ = bench.Store.Checkpoints.RequestAsync();
                bench.RunUntilIdle();
                if (!answer.IsCompletedSuccessfully || StoreBench.Answer(answer) is not { Outcome: WriteOutcome.Applied } result)
                    break;
                (parts, deleted, isPartial) = (parts + 1, deleted + result.Deleted, result.IsPartial);
            }
        }
        catch (Exception opening) when (opening is SimulatedCrashException or StorageIoException)
        {
            Assert.True(disk.IsOff, opening.Message);
        }
        return (parts, deleted);
    }

    /// <returns>The first member that is left.</returns>
    private static int Check(SimulatedDisk disk, int answered, string story)
    {
        using var bench = new StoreBench(disk, options: Options);
        bench.Open();
        var sets = bench.ReadAllSets();
        var left = sets.TryGetValue(Set, out var members) ? members.Split(' ').Length : 0;
        Assert.True(Members - left >= answered, $"{story}: the deletion of {answered} members was answered, but {left} of {Members} are in the store.");
        CheckFrom(Members - left);
        // A delete that is asked for again goes on where the crash left it.
        while (bench.Write(request => request.SetDelete(StoreBench.Text(Set))) is { IsPartial: true } part)
        {
            Assert.Equal((WriteOutcome.Applied, true), (part.Outcome, part.Deleted > 0));
        }
        CheckFrom(Members);
        return Members - left;

        void CheckFrom(int first)
        {
            var expected = new SortedDictionary<string, string>(StringComparer.Ordinal) { [Before] = BesideMembers, [Behind] = BesideMembers };
            if (first < Members)
                expected[Set] = string.Join(' ', Enumerable.Range(first, Members - first).Select(NameOf));
            Assert.Equal(expected, bench.ReadAllSets());
            Assert.Equal([KeyValuePair.Create(Set, "value")], bench.ReadAllKeys());
        }
    }

    /// <summary>Three hundred bytes, so that a leaf has about twenty.</summary>
    private static string NameOf(int number) => string.Create(CultureInfo.InvariantCulture, $"member-{number:d5}-{new string('m', 290)}");

    private static byte[] Member(int number) => StoreBench.Text(NameOf(number));
}
