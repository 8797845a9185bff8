using KvCluster.Disk;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Recovery;
using KvCluster.Storage.Shared;
using KvCluster.Tests.Storage.Store;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Storage.Journal;

/// <summary>
/// Followers with a shared journal, one of which truncates records that blocks have, and gets others in their place. Power is lost at any call: it has a prefix
/// of what it was given before or after, with all that was reported, and no record of the line that is truncated comes back.
/// </summary>
public sealed class SharedJournalTruncationTests
{
    private const int Followers = 3;
    private const int Kept = 4;

    public static TheoryData<string, int> Modes => SharedJournalCrashTests.Modes;

    [Theory]
    [MemberData(nameof(Modes))]
    public void PowerLoss_AtAnyCallAroundATruncation_LeavesALineThatWasGiven(string mode, int lanes) => Seeds.Run(1, random =>
    {
        var unsynced = Enum.Parse<UnsyncedWrites>(mode);
        var seed = random.Next();
        int calls;
        using (var sound = new SimulatedDisk())
        {
            Run(sound, seed, lanes, out _);
            calls = sound.Calls;
        }
        for (var call = 1 + random.Next(3); call <= calls; call += 3)
        {
            using var disk = new SimulatedDisk { CrashAtCall = call };
            var followers = Run(disk, seed, lanes, out var didBlocksHaveSeveral);
            Assert.True(disk.IsOff && (call < calls || didBlocksHaveSeveral));
            disk.Restart(unsynced, call);
            for (var again = 0; again < 2; again++)
            {
                Assert.Empty(SharedBench.Settle(disk).Losses);
                foreach (var follower in followers)
                    follower.Check(disk, $"{mode}, call {call} of {calls}");
            }
        }
    });

    /// <summary>Appends the same to all followers, truncates the first one, and appends other records to it.</summary>
    private static List<Follower> Run(SimulatedDisk disk, int seed, int lanes, out bool hasSeveral)
    {
        var random = new Random(seed);
        var (writer, checkpoints, syncs, aside) = (new StepExecutor(), new StepExecutor(), new StepExecutor(), new StepExecutor());
        StepExecutor[] journals = [.. Enumerable.Range(0, lanes).Select(static _ => new StepExecutor())];
        var followers = new List<Follower>();
        hasSeveral = false;
        SharedJournal? shared = null;
        disk.DuringWrite = _ =>
        {
            if ((aside.IsRunning || journals.Any(static lane => lane.IsRunning)) && random.Next(2) == 0)
                Step();
        };
        try
        {
            disk.CreateDirectories($"{SharedBench.Root}/shards");
            shared = new SharedJournal(disk, SharedBench.Root, 0x5EED, SharedBench.FileBytes, journals, syncs);
            var context = new StoreContext(
                disk, writer, journals, checkpoints, new ManualTime(), NullLogger.Instance,
                StoreBench.SmallOptions with { JournalWrites = lanes, SharesJournal = true }, new StepExecutor())
            {
                SharedJournal = shared,
                JournalAside = aside,
            };
            for (var index = 0; index < Followers; index++)
                followers.Add(new Follower(context, index));
            for (var round = 0; round < 9; round++)
            {
                followers.ForEach(static follower => follower.Append(epoch: 1));
                Advance(round);
            }
            followers[0].Truncate(Kept);
            for (var round = 0; round < 9; round++)
            {
                followers.ForEach(static follower => follower.Append(epoch: follower.Index == 0 ? 3u : 1u));
                Advance(round);
            }
            RunUntilIdle();
            hasSeveral = shared.Blocks > 4;
            foreach (var follower in followers.Where(_ => !disk.IsOff))
                follower.CheckHasAll();
        }
        catch (Exception ending) when (disk.IsOff && ending is SimulatedCrashException)
        {
            // Power was lost, which this test is about.
        }
        finally
        {
            disk.SyncsNothing = true;
            foreach (var executor in (StepExecutor[])[writer, .. journals, aside, checkpoints, syncs])
                executor.Clear();
            foreach (var follower in followers)
                follower.Store.Dispose();
            shared?.Fail(new SimulatedCrashException());
            shared?.Dispose();
            disk.SyncsNothing = false;
            disk.DuringWrite = null;
        }
        return followers;

        void Advance(int round)
        {
            if (round % 3 == 2)
                RunUntilIdle();
            for (var steps = random.Next(6); steps > 0; steps--)
                Step();
        }

        void RunUntilIdle()
        {
            while (!disk.IsOff && Step())
            {
            }
        }

        bool Step()
        {
            StepExecutor[] all = [writer, .. journals, aside, checkpoints, syncs];
            var waiting = Array.FindAll(all, static executor => executor is { Count: > 0, IsRunning: false });
            return waiting.Length > 0 && waiting[random.Next(waiting.Length)].RunOne();
        }
    }

    private sealed class Follower : IStoreEvents
    {
        /// <summary>What it was given before the truncation, and all in all.</summary>
        private readonly List<RecordRef> _before = [];
        private readonly List<RecordRef> _line = [];
        private RecordRef _durable;
        private bool _isTruncated;

        public Follower(StoreContext context, int index)
        {
            Index = index;
            Store = ReplicaStore.Create(
                context, SharedBench.DirectoryOf(index), StandaloneStore.StateOf(new StoreIdentity(new((ulong)index + 1), new((uint)index + 1), 0)));
            Store.Start(this);
        }

        public int Index { get; }

        public ReplicaStore Store { get; }

        public void CheckHasAll() => Assert.Equal((null, _line[^1]), (Store.Life.Failure, _durable));

        public void Append(uint epoch)
        {
            var bytes = RecordBody.Encode(Store.Log.Last, RecordFlags.None, epoch, 1, _line.Count, new byte[100 + (700 * (_line.Count % 4))], out var record);
            Assert.True(VerifiedBody.TryVerify(bytes, out var body));
            if (Store.Log.TryAppend(body))
                _line.Add(record);
            else
                Assert.NotNull(Store.Life.Failure);
        }

        public void Truncate(int kept)
        {
            if (Store.Life.HasEnded)
                return;
            _before.AddRange(_line);
            Store.Log.Truncate(_line[kept - 1].Etag);
            _line.RemoveRange(kept, _line.Count - kept);
        }

        /// <summary>What is on the disk is a line that it was given, up to a record that is not before the last one that was reported.</summary>
        public void Check(SimulatedDisk disk, string story)
        {
            if (!disk.DirectoryExists(SharedBench.DirectoryOf(Index)))
            {
                Assert.Equal(default, _durable);
                return;
            }
            using var recovered = RecoveredStore.Open(
                new StoreContext(
                    disk, new StepExecutor(), [new StepExecutor()], new StepExecutor(), new ManualTime(), NullLogger.Instance, StoreBench.SmallOptions,
                    new StepExecutor()),
                SharedBench.DirectoryOf(Index), mayRecover: false);
            var found = Enumerable.Range(0, recovered.Index.Count).Select(index => recovered.Index[index].Record).ToList();
            var isBefore = !_isTruncated && _before.Take(found.Count).SequenceEqual(found);
            Assert.True(isBefore || _line.Take(found.Count).SequenceEqual(found), $"{story}: follower {Index} has {string.Join(' ', found)}.");
            // A truncation that was asked for may have happened.
            var isReported = _durable == default || found.Contains(_durable) || (!_isTruncated && _before.Count > 0 && found.Count >= Kept);
            Assert.True(isReported, $"{story}: follower {Index} has {found.Count} records, but not {_durable}, which it reported.");
        }

        void IStoreEvents.Durable(RecordRef record) => _durable = record;

        void IStoreEvents.ControlWritten(ControlState state)
        {
        }

        void IStoreEvents.Truncated(RecordRef last) => (_isTruncated, _durable) = (true, last);

        void IStoreEvents.WorkQueued()
        {
        }

        bool IStoreEvents.MayAnswerReads() => false;

        void IStoreEvents.Failed(Exception first)
        {
        }
    }
}
