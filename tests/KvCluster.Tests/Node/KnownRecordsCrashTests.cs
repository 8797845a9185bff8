using KvCluster.Disk;
using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;
using KvCluster.Node.Hosting;
using KvCluster.Storage.Files;

namespace KvCluster.Tests.Node;

/// <summary>
/// The copies of the coordinator's records on a disk that loses power or fails at each call of each write. Afterwards each record is as before the write or as
/// after it, and what was kept, or read by a process that acts on it, stays. A node that forgot a recovery would follow the coordinator that had been lost.
/// </summary>
public sealed class KnownRecordsCrashTests
{
    private const string Data = "/data";
    private const string Known = $"{Data}/known";

    /// <summary>Subsets of unsynced changes that are tried for each call, where there are several.</summary>
    private const int SubsetsTried = 6;

    private static readonly RecoveryClaim First = new() { Recovery = 1, RecoveryId = 7, Node = 2 };
    private static readonly RecoveryClaim Second = new() { Recovery = 2, RecoveryId = 8, Node = 3 };

    /// <summary>Each changes one record, and may be repeated.</summary>
    private static readonly (string Name, Action<KnownRecords> Write)[] Steps =
    [
        ("the cluster's record", static known => known.Keep(new ClusterRecord { ClusterId = "c", FormatLevel = 2 })),
        ("a shard's record", static known => known.TryKeep(Shard(1, recovery: 0, generation: 4, replicas: 3))),
        ("the nodes", static known => known.Keep(Nodes(3))),
        ("a newer record of the shard", static known => known.TryKeep(Shard(1, recovery: 0, generation: 5, replicas: 4))),
        // Longer than some sectors, so that a part of it can be torn.
        ("a long record of a shard", static known => known.TryKeep(Shard(2, recovery: 0, generation: 9, replicas: 60))),
        ("a promise", static known => known.TryBind(First)),
        ("the end of the promise", static known => known.Release(First)),
        ("a second promise", static known => known.TryBind(Second)),
        ("a third one instead", static known => known.TryBind(new RecoveryClaim { Recovery = 3, RecoveryId = 9, Node = 1 })),
        ("the cluster's record of that recovery", static known => known.Keep(
            new ClusterRecord { ClusterId = "c", FormatLevel = 3, Recovery = 3, RecoveryId = 9, Absent = { 4 } })),
        ("the rebuilt record of the shard", static known => known.TryKeep(Shard(1, recovery: 3, generation: 2, replicas: 3))),
        ("fewer nodes", static known => known.Keep(Nodes(2))),
    ];

    public static TheoryData<string> Modes => new(Enum.GetNames<UnsyncedWrites>());

    public static TheoryData<string> Faults => new((string[])
    [
        nameof(DiskFault.ErrorAfterwards),
        nameof(DiskFault.NoRoomAfterwards), nameof(DiskFault.Error), nameof(DiskFault.NoRoom), nameof(DiskFault.ShortWrite), nameof(DiskFault.SyncLosesData),
    ]);

    [Theory]
    [MemberData(nameof(Modes))]
    public void Crash_AtEveryCallOfEveryWrite_LeavesTheStateBeforeItOrAfterIt(string mode)
    {
        var states = StatesOfASoundRun();
        var unsynced = Enum.Parse<UnsyncedWrites>(mode);
        // Whether all are lost or all arrive does not depend on a seed.
        var subsets = unsynced is UnsyncedWrites.Dropped or UnsyncedWrites.Kept ? 1 : SubsetsTried;
        var calls = 0;
        for (var isReached = true; isReached; calls++)
        {
            for (var seed = 1; seed <= subsets; seed++)
            {
                using var disk = EmptyDisk();
                disk.CrashAtCall = disk.Calls + calls + 1;
                var done = WriteUntilItFails<SimulatedCrashException>(KnownRecords.Open(disk, Data), from: 0);
                isReached = disk.IsOff;
                var story = $"power lost at call {calls + 1}, in the write of {NameOf(done)}, seed {seed}";
                disk.Restart(unsynced, seed);
                CheckGoesOn(disk, states, done, story);
            }
        }

        Assert.True(calls > 4 * Steps.Length, $"The writes made only {calls} calls.");
    }

    /// <summary>Power is lost once more while the interrupted write is repeated, over what it has left.</summary>
    [Theory]
    [Trait("Turn", "4")]
    [MemberData(nameof(Modes))]
    public void Crash_AtEveryCallOfTheRepetition_LeavesTheStateBeforeItOrAfterIt(string mode)
    {
        var states = StatesOfASoundRun();
        var unsynced = Enum.Parse<UnsyncedWrites>(mode);
        var isReached = true;
        for (var calls = 0; isReached; calls++)
        {
            using var once = EmptyDisk();
            once.CrashAtCall = once.Calls + calls + 1;
            var done = WriteUntilItFails<SimulatedCrashException>(KnownRecords.Open(once, Data), from: 0);
            isReached = once.IsOff;
            once.Restart(UnsyncedWrites.Kept);
            for (var again = 1; again <= 8; again++)
            {
                using var disk = once.Copy();
                disk.CrashAtCall = disk.Calls + again;
                var (story, doneAgain) = ($"power lost at call {calls + 1}, in the write of {NameOf(done)}, and at call {again} of the next process", done);
                try
                {
                    doneAgain = WriteUntilItFails<SimulatedCrashException>(KnownRecords.Open(disk, Data), done);
                }
                catch (SimulatedCrashException)
                {
                    // As it opened them.
                }

                disk.Restart(unsynced, seed: (calls * 8) + again);
                CheckGoesOn(disk, states, doneAgain, story);
            }
        }
    }

    /// <summary>The process goes on with the state before, whether the call had an effect or not, and repeats the write.</summary>
    [Theory]
    [MemberData(nameof(Faults))]
    public void AnyCall_Fails_TheWriteIsRepeatedAndThenStays(string name)
    {
        var states = StatesOfASoundRun();
        var fault = Enum.Parse<DiskFault>(name);
        for (var chosen = 1; ; chosen++)
        {
            using var disk = EmptyDisk();
            Fail(disk, fault, chosen);
            var known = KnownRecords.Open(disk, Data);
            var done = WriteUntilItFails<StorageIoException>(known, from: 0);
            disk.Fault = null;
            if (done == Steps.Length)
                break;
            var story = $"{fault} at call {chosen}, in the write of {NameOf(done)}";
            Assert.True(states[done] == TextOf(known), $"{story}: the process goes on with {TextOf(known)}");
            using (var dead = disk.Copy())
                CheckIsBeforeOrAfter(KnownRecords.Open(dead, Data), states, done, story);

            Steps[done].Write(known);
            disk.Restart(UnsyncedWrites.Dropped);
            var reopened = TextOf(KnownRecords.Open(disk, Data));
            Assert.True(states[done + 1] == reopened, $"{story}, then repeated: after a power loss there is {reopened}");
            CheckGoesOn(disk, states, done + 1, story);
        }
    }

    /// <summary>
    /// A process ended after a rename, before the sync of the directory. The next one read the new name from memory, took it for kept and acted on it, and
    /// after a power loss the record before was there again: a node had left a recovery that it had joined.
    /// </summary>
    [Theory]
    [Trait("Turn", "4")]
    [MemberData(nameof(Faults))]
    public void AnyCall_FailsAndTheProcessEnds_WhatTheNextOneReadsStays(string name)
    {
        var states = StatesOfASoundRun();
        var fault = Enum.Parse<DiskFault>(name);
        var happened = true;
        for (var chosen = 1; happened; chosen++)
        {
            foreach (var unsynced in Enum.GetValues<UnsyncedWrites>())
            {
                using var disk = EmptyDisk();
                Fail(disk, fault, chosen);
                var done = WriteUntilItFails<StorageIoException>(KnownRecords.Open(disk, Data), from: 0);
                disk.Fault = null;
                happened = done < Steps.Length;
                var story = $"{fault} at call {chosen}, in the write of {NameOf(done)}, then a restart and a power loss ({unsynced})";
                var read = TextOf(KnownRecords.Open(disk, Data));
                disk.Restart(unsynced, chosen);
                var reopened = TextOf(KnownRecords.Open(disk, Data));
                Assert.True(read == reopened, $"{story}: {read} was read, and {reopened} is there");
                CheckGoesOn(disk, states, done, story);
            }
        }
    }

    /// <summary>They may become again what they were, unlike all other records. The file had other nodes than the process believed.</summary>
    [Fact]
    public void Keep_NodesOfBeforeAWriteThatFailedButArrived_WritesThemAgain()
    {
        using var disk = EmptyDisk();
        var known = KnownRecords.Open(disk, Data);
        known.Keep(Nodes(3));
        disk.Fault = static call => call.Operation == "Rename" ? DiskFault.ErrorAfterwards : DiskFault.None;
        Assert.Throws<StorageIoException>(() => known.Keep(Nodes(2)));
        disk.Fault = null;
        known.Keep(Nodes(3));
        Assert.Equal(3, KnownRecords.Open(disk, Data).Nodes.Count);

        var calls = disk.Calls;
        known.Keep(Nodes(3));
        Assert.Equal(calls, disk.Calls);
    }

    /// <summary>Who made the recovery is told so, and the promise holds until its time is over, in this process as in the next.</summary>
    [Fact]
    public void Release_WhoseFileCannotBeDeleted_LeavesTheNodeBound()
    {
        using var disk = EmptyDisk();
        var known = KnownRecords.Open(disk, Data);
        Assert.Null(known.TryBind(First));
        disk.Fault = static call => call.Operation == "Delete" ? DiskFault.Error : DiskFault.None;
        Assert.Throws<StorageIoException>(() => known.Release(First));
        disk.Fault = null;
        Assert.Equal(First, known.Bound);
        Assert.Equal(First, KnownRecords.Open(disk, Data).Bound);
        known.Release(First);
        Assert.Null(known.Bound);
        Assert.False(disk.FileExists($"{Known}/bound"));
    }

    /// <summary>The next process has the state before or after the interrupted write, repeats that and makes the others, and then all of them stay.</summary>
    private static void CheckGoesOn(SimulatedDisk disk, List<string> states, int done, string story)
    {
        var known = KnownRecords.Open(disk, Data);
        CheckIsBeforeOrAfter(known, states, done, story);
        for (var step = done; step < Steps.Length; step++)
        {
            Steps[step].Write(known);
            Assert.True(states[step + 1] == TextOf(known), $"{story}, then {NameOf(step)}: {TextOf(known)}");
        }

        disk.Restart(UnsyncedWrites.Dropped);
        var reopened = TextOf(KnownRecords.Open(disk, Data));
        Assert.True(states[^1] == reopened, $"{story}, then all other writes and a power loss: {reopened}");
        Assert.All(disk.List(Known), static file => Assert.DoesNotContain(".new", file, StringComparison.Ordinal));
    }

    private static void CheckIsBeforeOrAfter(KnownRecords known, List<string> states, int done, string story)
    {
        var found = TextOf(known);
        Assert.True(found == states[done] || found == states[Math.Min(done + 1, Steps.Length)], $"{story}: {found} is there");
    }

    /// <summary>The number of writes that are done, counted from the first one of all.</summary>
    private static int WriteUntilItFails<TFailure>(KnownRecords known, int from)
        where TFailure : Exception
    {
        for (var step = from; step < Steps.Length; step++)
        {
            try
            {
                Steps[step].Write(known);
            }
            catch (TFailure)
            {
                return step;
            }
        }

        return Steps.Length;
    }

    /// <summary>The state before the first write and after each.</summary>
    private static List<string> StatesOfASoundRun()
    {
        using var disk = EmptyDisk();
        var known = KnownRecords.Open(disk, Data);
        var states = new List<string> { TextOf(known) };
        foreach (var (_, write) in Steps)
        {
            write(known);
            states.Add(TextOf(known));
            Assert.NotEqual(states[^2], states[^1]);
            Assert.Equal(states[^1], TextOf(KnownRecords.Open(disk, Data)));
        }

        return states;
    }

    private static void Fail(SimulatedDisk disk, DiskFault fault, int chosen)
    {
        var calls = 0;
        disk.Fault = call => call.Changes && ++calls == chosen ? fault : DiskFault.None;
    }

    private static SimulatedDisk EmptyDisk()
    {
        var disk = new SimulatedDisk();
        disk.CreateDirectory(Data);
        disk.SyncDirectory("/");
        return disk;
    }

    private static string NameOf(int step) => step < Steps.Length ? Steps[step].Name : "nothing";

    private static string TextOf(KnownRecords known) => string.Join(
        '\n',
        [
            known.Cluster is { } cluster ? RecordText.Format(cluster) : "no cluster",
            known.Bound is { } bound ? RecordText.Format(bound) : "not bound",
            .. known.Nodes.Select(static node => RecordText.Format(node)),
            .. known.Shards.OrderBy(static record => record.Shard).Select(static record => RecordText.Format(record)),
        ]);

    private static ShardRecord Shard(uint shard, ulong recovery, ulong generation, int replicas)
    {
        var record = new ShardRecord { Shard = shard, Recovery = recovery, Generation = generation };
        for (var replica = 1; replica <= replicas; replica++)
            record.Replicas.Add(new ReplicaRecord { Replica = (ulong)replica << 40, Node = (uint)replica, Created = true });
        return record;
    }

    private static IReadOnlyList<NodeRecord> Nodes(int count) =>
        [.. Enumerable.Range(1, count)
            .Select(static node => new NodeRecord { Node = (uint)node, Incarnation = (ulong)node << 32, Address = $"http://node-{node}:7401" })];
}
