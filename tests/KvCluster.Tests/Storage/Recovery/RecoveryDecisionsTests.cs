using KvCluster.Disk;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.Inspection;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Recovery;
using KvCluster.Storage.Sessions;
using KvCluster.Tests.ServiceDefaults.Security;
using KvCluster.Tests.Storage.Store;

namespace KvCluster.Tests.Storage.Recovery;

/// <summary>Walks every row of <c>RecoveryDecisions</c>: damages a sound store accordingly and opens it.</summary>
public sealed class RecoveryDecisionsTests : IDisposable
{
    private const string State = StoreBench.DirectoryPath + "/state-00000001";
    private const string Journal = State + "/journal";
    private const string Data = State + "/data";
    private const int RecordCount = 45;
    private const string Control = StoreBench.DirectoryPath + "/control";
    private static readonly StoreOptions KeepsJournal = StoreBench.SmallOptions with { RetainedJournalBytes = 1 << 30 };

    private static readonly Dictionary<string, Action<RecoveryDecisionsTests>> Damages = new()
    {
        ["quarantined"] = test => QuarantineMark.Write(test.Disk, StoreBench.DirectoryPath, "a test\ndoes not believe it"),
        ["control file missing"] = test => test.Disk.Delete(Control),
        ["control file unreadable"] = test =>
        {
            test.Disk.FlipBit(Control, 20);
            test.Disk.FlipBit(Control, 4096 + 20);
        },
        ["state missing"] = test => test.Disk.DeleteDirectory(State),
        ["data file unusable"] = test => test.Disk.WriteAll(Data, new byte[test.Disk.ReadAll(Data).Length]),
        ["no segment"] = test =>
        {
            foreach (var segment in test.Segments())
                test.Disk.FlipBit(segment.Path, 20);
        },
        ["last segment missing"] = test => test.Disk.Delete(test.Segments()[^1].Path),
        ["last segment lost its header"] = test => test.Disk.FlipBit(test.Segments()[^1].Path, 20),
        ["journal does not reach the checkpoint"] = test => test.Disk.Delete(test.Segments()[^3].Path),
        ["segment damaged"] = test => test.Disk.FlipBit(test.Segments()[^3].Path, SegmentHeader.BlockBytes + 100),
        ["durable record damaged"] = test => test.Disk.FlipBit(test.Segments()[^1].Path, SegmentHeader.BlockBytes + 100),
        ["checkpoint not on the chain"] = test =>
        {
            test.OpenAnd(bench => bench.Checkpoint());
            using var other = new StoreBench(options: KeepsJournal);
            Fill(other, "other");
            other.Close();
            other.Open();
            other.Checkpoint();
            other.Close();
            test.Disk.WriteAll(Data, other.Disk.ReadAll(Data));
        },
        ["journal unreadable"] = test =>
        {
            var tail = test.Segments()[^1];
            test.Disk.MakeUnreadable(tail.Path, test.LastRecord(tail).Offset, 1);
        },
        ["journal ends before committed"] = test =>
        {
            test.OpenAnd(bench => bench.Store.Log.WriteControl(bench.Store.Durable.Control with { Committed = bench.Store.Durable.Last.Etag }));
            test.FlipInLastRecord();
        },
        ["journal ends before acknowledged"] = test =>
        {
            test.OpenAnd(bench => bench.Store.Log.WriteControl(bench.Store.Durable.Control with { Acknowledged = bench.Store.Durable.Last.Etag }));
            test.FlipInLastRecord();
        },
        ["covered record damaged"] = test =>
        {
            test.OpenAnd(bench => bench.Checkpoint());
            // In the envelope, because bodies that a checkpoint covers are read only for followers.
            test.Disk.FlipBit(test.Segments()[0].Path, SegmentHeader.BlockBytes + 20);
        },
        ["torn record at the end"] = test => test.FlipInLastRecord(),
        ["control slot torn"] = test => test.Disk.FlipBit(Control, 20),
        ["sound"] = _ => { },
    };

    /// <summary>All records, as a peer has them.</summary>
    private readonly List<ReadOnlyMemory<byte>> _bodies = [];
    private readonly StoreBench _bench = new(options: KeepsJournal);

    public RecoveryDecisionsTests()
    {
        Fill(_bench, "value");
        Assert.True(_bench.Store.Reader.ReadBodies(Etag.None, int.MaxValue, _bodies) > RecordCount);
        _bench.Close();
    }

    public static TheoryData<string> RowsToRefill =>
        new(RecoveryDecisions.Rows.Where(row => row.Decision == RecoveryDecision.RecoverFromPeers).Select(row => row.Name));

    public static TheoryData<string> Rows => new(RecoveryDecisions.Rows.Select(row => row.Name));

    private KvCluster.Disk.SimulatedDisk Disk => _bench.Disk;

    public void Dispose() => _bench.Dispose();

    [Theory]
    [MemberData(nameof(Rows))]
    public void Open_DamagedAsInARow_IsDecidedByThatRow(string name)
    {
        Damages[name](this);
        var before = Snapshot();
        var row = RecoveryDecisions.Rows.Single(row => row.Name == name);
        if (row.Decision != RecoveryDecision.Open)
            Assert.Equal(name, Refusal(mayRecover: false).Row);
        if (row.Decision == RecoveryDecision.Rebuild)
        {
            Assert.Equal(name, Refusal(mayRecover: true).Row);
        }
        else
        {
            using var recovered = RecoveredStore.Open(_bench.Context, StoreBench.DirectoryPath, mayRecover: true);
            Assert.Equal(name, recovered.Row.Name);
        }
        Assert.Equal(before, Snapshot());
        if (row.Decision == RecoveryDecision.Open)
            OpensWith(name == "torn record at the end" ? RecordCount - 1 : RecordCount);
    }

    /// <summary>That a disk had lost durable records was said at level Information, among the lines of every start.</summary>
    [Theory]
    [InlineData("durable record damaged", 1)]
    [InlineData("torn record at the end", 0)]
    [InlineData("sound", 0)]
    public void Open_OfAJournalThatHasLostRecords_Warns(string name, int warnings)
    {
        Damages[name](this);
        var log = new LinesLog();
        using var recovered = RecoveredStore.Open(_bench.Context with { Log = log }, StoreBench.DirectoryPath, mayRecover: true);
        Assert.Equal(warnings, log.Lines.Length);
        Assert.All(log.Lines, line => Assert.StartsWith($"Warning: Opening '{StoreBench.DirectoryPath}': {name}: ", line, StringComparison.Ordinal));
    }

    [Theory]
    [MemberData(nameof(Rows))]
    public void Check_DamagedAsInARow_NamesTheRowAndWhatIsLost(string name)
    {
        Damages[name](this);
        var before = Snapshot();
        var report = StoreCheck.Run(Disk, StoreBench.DirectoryPath);
        Assert.Equal(name, report.Row.Name);
        Assert.Equal(report.Row.Decision != RecoveryDecision.Open || name == "covered record damaged", report.IsDamaged);
        Assert.All(report.Findings, finding => Assert.StartsWith(StoreBench.DirectoryPath, finding.File, StringComparison.Ordinal));
        Assert.Equal(before, Snapshot());
    }

    [Theory]
    [MemberData(nameof(Rows))]
    public void Recover_DamagedAsInARow_KeepsWhatCanBeReadAndTheOldDirectory(string name)
    {
        Damages[name](this);
        var before = Snapshot();
        using (var recovery = StoreRecovery.Begin(Disk, StoreBench.DirectoryPath, clusterHash: 0))
        {
            Assert.Equal(name is not ("sound" or "torn record at the end" or "control slot torn"), recovery.IsNeeded);
            Assert.Equal(name == "state missing", recovery.WhyNot is not null);
            if (!recovery.IsNeeded || recovery.WhyNot is not null)
                return;
            Assert.NotEmpty(recovery.Plan());
            Assert.Equal(before, Snapshot());
            var kept = recovery.Run();
            Assert.Equal(before, Snapshot(kept).Replace(kept, StoreBench.DirectoryPath, StringComparison.Ordinal));
        }
        Assert.False(StoreCheck.Run(Disk, StoreBench.DirectoryPath).IsDamaged);
        _bench.Open();
        var keys = _bench.ReadAllKeys().Keys.ToArray();
        Assert.Equal(Enumerable.Range(0, keys.Length).Select(index => $"key-{index:00}"), keys);
        // Where the journal is not what is damaged, nothing is lost.
        if (name is "quarantined"
            or "control file missing" or "control file unreadable" or "data file unusable" or "checkpoint not on the chain" or "covered record damaged")
            Assert.Equal(RecordCount, keys.Length);
        Assert.Equal(WriteOutcome.Applied, _bench.Write(request => request.Put(StoreBench.Text("later"), StoreBench.Text("value"))).Outcome);
        _bench.Close();
        OpensAgain();
    }

    [Theory]
    [MemberData(nameof(RowsToRefill))]
    public void Open_WithPeers_ReportsTheLossUntilItIsRecovered(string name)
    {
        Damages[name](this);
        for (var opening = 0; opening < 3; opening++)
        {
            using var store = ReplicaStore.Open(_bench.Context, StoreBench.DirectoryPath, mayRecover: true);
            // The protocol asks this. If it is true, the replica neither votes nor acknowledges.
            Assert.True(store.Log.Last.Etag < Etag.Max(store.Durable.Control.Acknowledged, store.Durable.Control.Committed), $"After open {opening} the loss "
                + "is not reported.");
            Assert.Equal(store.Log.Last, store.Durable.Last);
        }
        RecoverFromPeers();
        OpensWith(RecordCount);
    }

    [Fact]
    public void Open_WithPeersWhilePowerFails_NeverHidesTheLoss()
    {
        foreach (var name in RecoveryDecisions.Rows.Where(row => row.Decision == RecoveryDecision.RecoverFromPeers).Select(row => row.Name))
        {
            for (var call = 1; ; call++)
            {
                using var test = new RecoveryDecisionsTests();
                Damages[name](test);
                // Make the removal of a segment durable.
                test.Disk.SyncDirectory(Journal);
                test.Disk.CrashAtCall = test.Disk.Calls + call;
                try
                {
                    ReplicaStore.Open(test._bench.Context, StoreBench.DirectoryPath, mayRecover: true).Dispose();
                    break;
                }
                catch (SimulatedCrashException)
                {
                    test.Disk.Restart((UnsyncedWrites)(call % 4), call);
                }
                using var store = ReplicaStore.Open(test._bench.Context, StoreBench.DirectoryPath, mayRecover: true);
                Assert.True(store.Log.Last.Etag < Etag.Max(store.Durable.Control.Acknowledged, store.Durable.Control.Committed), $"{name}: with a power loss "
                    + $"at call {call} the loss is not reported.");
            }
        }
    }

    [Fact]
    public void Open_QuarantinedBeforeAPowerLoss_IsRefusedWithTheReason()
    {
        QuarantineMark.Write(Disk, StoreBench.DirectoryPath, "a test\ndoes not believe it");
        Disk.Restart(UnsyncedWrites.Dropped, 1);
        Assert.EndsWith("not trusted: a test does not believe it.", Refusal(mayRecover: true).Message, StringComparison.Ordinal);
        // An operator may remove the mark.
        Disk.Delete(StoreBench.DirectoryPath + "/quarantined");
        OpensWith(RecordCount);
    }

    [Fact]
    public void Quarantine_WhilePowerFails_LeavesADirectoryThatOpensOrReportsTheMark()
    {
        var refused = 0;
        for (var call = 1; ; call++)
        {
            using var test = new RecoveryDecisionsTests();
            test.Disk.CrashAtCall = test.Disk.Calls + call;
            try
            {
                QuarantineMark.Write(test.Disk, StoreBench.DirectoryPath, "a test");
                break;
            }
            catch (SimulatedCrashException)
            {
                test.Disk.Restart((UnsyncedWrites)(call % 4), call);
            }
            if (!test.Disk.FileExists(StoreBench.DirectoryPath + "/quarantined"))
            {
                test.OpensWith(RecordCount);
                continue;
            }
            Assert.Equal("quarantined", test.Refusal(mayRecover: true).Row);
            // A caller that did not hear of the success marks it again.
            QuarantineMark.Write(test.Disk, StoreBench.DirectoryPath, "a shorter one");
            Assert.EndsWith(": a shorter one.", test.Refusal(mayRecover: true).Message, StringComparison.Ordinal);
            refused++;
        }
        Assert.InRange(refused, 1, int.MaxValue);
    }

    [Fact]
    public void Damages_CoverTheWholeTable() =>
        Assert.Equal(RecoveryDecisions.Rows.Select(row => row.Name).Order(), Damages.Keys.Order());

    [Fact]
    public void Open_BadCoveredRecordInTheLastSegment_ContinuesAfterIt()
    {
        OpenAnd(bench => bench.Checkpoint());
        FlipInLastRecord();
        using (var recovered = RecoveredStore.Open(_bench.Context, StoreBench.DirectoryPath, mayRecover: false))
            Assert.Equal("covered record damaged", recovered.Row.Name);
        OpensWith(RecordCount);
    }

    /// <summary>
    /// A replica truncated its tail and continued in a new segment, whose header was then damaged. The journal then seemed to end in the segment before:
    /// the truncated tail was back, and records acknowledged since were gone without a report. Only a first record that followed the tail revealed a lost
    /// header.
    /// </summary>
    [Theory]
    [InlineData(0)]
    [InlineData(1)]
    [InlineData(2)]
    public void Open_HeaderLostAfterATruncation_IsALoss(int recordsLostWithIt)
    {
        using var leader = new ReplicaBench(new(1), KeepsJournal);
        using var bench = new ReplicaBench(new(2), KeepsJournal);
        leader.Lead(1);
        for (var index = 0; index < 6; index++)
            _ = leader.Put($"key-{index}", "of epoch 1");
        bench.Follow(leader);
        var kept = new Etag(1, 3);
        bench.Store.Committed.Truncate(kept);
        leader.Store.Writes.StopLeading();
        leader.Store.Committed.Truncate(kept);
        leader.Run();
        leader.Lead(2);
        for (var index = 0; index < 4; index++)
            _ = leader.Put($"key-{index}", "of epoch 2");
        bench.Run();
        bench.Follow(leader);
        Assert.Equal(leader.Store.Log.Last, bench.Store.Durable.Last);
        var disk = bench.Disk;
        var newest = SegmentsOf(disk)[^1];
        disk.FlipBit(newest.Path, 20);
        for (var lost = 0; lost < recordsLostWithIt; lost++)
            disk.FlipBit(newest.Path, SegmentHeader.BlockBytes + (lost * RecordEnvelope.BlockBytes) + 20);
        Assert.Equal(
            "last segment lost its header",
            Assert.Throws<RecoveryRefusedException>(() => RecoveredStore.Open(bench.Context, StoreBench.DirectoryPath, mayRecover: false)).Row);
        using var store = ReplicaStore.Open(bench.Context, StoreBench.DirectoryPath, mayRecover: true);
        Assert.True(store.Log.Last.Etag < store.Durable.Control.Acknowledged, "The replica opens as if it had never truncated its tail.");
    }

    /// <summary>A recycled segment that was never used again still holds records of its former use. They prove nothing.</summary>
    [Fact]
    public void Open_RecordsOfAnEarlierUseInThePreparedSegment_AreNoLoss()
    {
        var prepared = SegmentName.PathOf(Journal, Segments()[^1].Header.Number + 1);
        var content = Disk.ReadAll(Segments()[^2].Path);
        content.AsSpan(0, 2 * SegmentHeader.BlockBytes).Clear();
        Disk.WriteAll(prepared, content);
        using (var recovered = RecoveredStore.Open(_bench.Context, StoreBench.DirectoryPath, mayRecover: false))
            Assert.Equal("sound", recovered.Row.Name);
        OpensWith(RecordCount);
    }

    [Theory]
    [InlineData("sound")]
    [InlineData("torn record at the end")]
    [InlineData("last segment missing")]
    [InlineData("data file unusable")]
    public void Open_DirectoryOfAnotherReplica_IsRefusedAndUntouched(string damage)
    {
        Damages[damage](this);
        var before = Snapshot();
        var own = ControlFile.StateOf(Disk, StoreBench.DirectoryPath)!.Identity;
        var calls = Disk.Calls;
        foreach (var other in (StoreIdentity[])[own with { ReplicaId = new(99) }, own with { Shard = new(99) }, own with { ClusterHash = 99 }])
        {
            var refusal = Assert.Throws<ForeignStoreException>(() => ReplicaStore.Open(_bench.Context, StoreBench.DirectoryPath, mayRecover: true, other));
            Assert.Contains($"{own.ReplicaId:x16}", refusal.Message, StringComparison.Ordinal);
        }
        Assert.Equal(before, Snapshot());
        Assert.Equal(calls, Disk.Calls);
        Assert.Empty(Disk.OpenPaths);
    }

    [Fact]
    public void Open_DirectoryOfItsOwner_Opens()
    {
        var owner = new StoreIdentity(ReplicaId: new(1), Shard: new(1), ClusterHash: 0);
        using var store = ReplicaStore.Open(_bench.Context, StoreBench.DirectoryPath, mayRecover: false, owner);
        Assert.Equal(owner, store.Durable.Control.Identity);
    }

    [Theory]
    [InlineData("control file missing")]
    [InlineData("control file unreadable")]
    public void StateOf_WithoutAControlFile_IsUnknown(string damage)
    {
        Damages[damage](this);
        Assert.Null(ControlFile.StateOf(Disk, StoreBench.DirectoryPath));
    }

    [Fact]
    public void Open_DataFileOfAnotherReplica_IsRefused()
    {
        using var other = new ReplicaBench(replica: new(2));
        Disk.WriteAll(Data, other.Disk.ReadAll(Data));
        Assert.Equal("data file unusable", Refusal(mayRecover: true).Row);
    }

    [Fact]
    public void Open_RecordOfAnEarlierUseAfterTheEnd_IsNotRead()
    {
        // A recycled segment still holds valid records of its former use. Only their envelopes tell the difference (S6).
        var tail = Segments()[^1];
        var bytes = Disk.ReadAll(tail.Path);
        var end = LastRecord(tail).End;
        var older = Disk.ReadAll(Segments()[^2].Path).AsSpan(SegmentHeader.BlockBytes, RecordEnvelope.BlockBytes);
        older.CopyTo(bytes.AsSpan((int)end));
        Disk.WriteAll(tail.Path, bytes);
        OpensWith(RecordCount);
    }

    private static void Fill(StoreBench bench, string value)
    {
        bench.Open();
        for (var index = 0; index < RecordCount; index++)
            bench.Write(request => request.Put(StoreBench.Text($"key-{index:00}"), StoreBench.Text($"{value}-{index}-{new string('x', 2000)}")));
    }

    private RecoveryRefusedException Refusal(bool mayRecover) =>
        Assert.Throws<RecoveryRefusedException>(() => RecoveredStore.Open(_bench.Context, StoreBench.DirectoryPath, mayRecover));

    /// <summary>Appends the missing records and then removes the mark, as the protocol does.</summary>
    private void RecoverFromPeers()
    {
        using (var store = ReplicaStore.Open(_bench.Context, StoreBench.DirectoryPath, mayRecover: true))
        {
            store.Start(new NoEvents());
            foreach (var body in _bodies)
                _ = store.TryAppend(body, out _);
            _bench.RunUntilIdle();
            Assert.Equal(store.Log.Last, store.Durable.Last);
            store.Log.WriteControl(store.Durable.Control with { Acknowledged = store.Log.Last.Etag, Committed = store.Log.Last.Etag });
            _bench.RunUntilIdle();
        }
        using var reopened = RecoveredStore.Open(_bench.Context, StoreBench.DirectoryPath, mayRecover: false);
        Assert.Equal(RecoveryDecision.Open, reopened.Row.Decision);
    }

    private void OpensWith(int keys)
    {
        _bench.Open();
        Assert.Equal($"key-{keys - 1:00}", _bench.ReadAllKeys().Keys.Last());
        Assert.Equal(keys, _bench.ReadAllKeys().Count);
    }

    private void OpensAgain()
    {
        _bench.Open();
        Assert.Equal("value", _bench.Read("later"));
    }

    private void OpenAnd(Action<StoreBench> action)
    {
        _bench.Open();
        action(_bench);
        _bench.RunUntilIdle();
        _bench.Close();
    }

    private void FlipInLastRecord()
    {
        var tail = Segments()[^1];
        Disk.FlipBit(tail.Path, LastRecord(tail).Offset + 60);
    }

    private JournalEntry LastRecord((string Path, SegmentHeader Header) segment) =>
        JournalScan.Read(Disk, Journal, covered: default, replicaId: new(1)).Entries.Last(entry => entry.Segment == segment.Header.Number);

    private List<(string Path, SegmentHeader Header)> Segments() => SegmentsOf(Disk);

    private static List<(string Path, SegmentHeader Header)> SegmentsOf(SimulatedDisk disk)
    {
        var found = new List<(string, SegmentHeader)>();
        foreach (var name in disk.List(Journal))
        {
            var path = $"{Journal}/{name}";
            if (SegmentHeader.TryRead(disk.ReadAll(path), path, out var header))
                found.Add((path, header));
        }
        return found;
    }

    private string Snapshot(string directory = StoreBench.DirectoryPath) => string.Join('\n', StoreBench.FilesOf(Disk, directory));

    private sealed class NoEvents : IStoreEvents
    {
        public void Durable(RecordRef record)
        {
        }

        public void ControlWritten(ControlState state)
        {
        }

        public void Truncated(RecordRef last)
        {
        }

        public void WorkQueued()
        {
        }

        public bool MayAnswerReads() => true;

        public void Failed(Exception first) => throw first;
    }
}
