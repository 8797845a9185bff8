using KvCluster.Disk;
using KvCluster.Node.Watching;
using KvCluster.Storage.Journal;
using KvCluster.Tests.Storage.Store;
using KvCluster.V1;

namespace KvCluster.Tests.Node.Watching;

/// <summary>
/// Watchers of a real store. What each is given is compared with a model of the writes: etcd's six properties, that is, events are ordered, unique, atomic,
/// resumable and reliable, and bookmarks are true.
/// </summary>
public sealed class WatchHubTests
{
    private static readonly WatchedRange Everything = new(default, default);

    [Fact]
    public void Watchers_UnderRandomWritesRestartsAndCompaction_SeeEveryChangeOnceInOrder() => Seeds.Run(12, random =>
    {
        using var bench = new WatchBench(random.Next(), keptBytes: random.Next(2) == 0 ? 2 << 10 : 64 << 10, journalBytes: random.Next(3) * (16 << 10));
        var watchers = Enumerable.Range(0, 12).Select(index => new TestWatcher(bench, RangeOf(random), index % 2 == 0)).ToList();
        watchers.ForEach(static watcher => watcher.Begin());
        for (var step = 0; step < 400; step++)
        {
            switch (random.Next(20))
            {
                case < 8:
                    bench.Write([.. Enumerable.Range(0, random.Next(1, 5)).Select(_ => OperationOf(random))]);
                    break;
                case 8:
                    bench.Store.Checkpoint();
                    break;
                case 9 when random.Next(4) == 0:
                    bench.Reopen();
                    watchers.ForEach(static watcher => watcher.Resume());
                    break;
                case 10:
                    watchers[random.Next(watchers.Count)].Resume();
                    break;
                case 11:
                    bench.LetTimePass();
                    break;
                default:
                    bench.Step();
                    break;
            }
            // The later ones are slow.
            for (var index = 0; index < watchers.Count; index++)
            {
                if (random.Next(1 + (index * index)) == 0)
                    Step(bench, watchers[index]);
            }
        }
        Drain(bench, watchers);
        Assert.All(watchers, watcher => Assert.Equal(bench.Committed, watcher.Position));
    });

    [Fact]
    public void Join_AtTheNewestPosition_SeesOnlyWhatComesAfterwards()
    {
        using var bench = new WatchBench();
        bench.Put("a", "before");
        var watcher = new TestWatcher(bench, Everything);
        watcher.Begin();
        bench.Put("a", "after");
        Drain(bench, [watcher]);
        Assert.Equal(["after"], watcher.Seen.Select(static one => one.Value));
    }

    /// <summary>A caller watches from the etag of its own put, which may be in the middle of a record with the writes of others.</summary>
    [Fact]
    public void Join_AfterAnOperationWithinARecord_SeesTheRestOfTheRecord()
    {
        using var bench = new WatchBench();
        bench.Write(new ModelOperation(EventKind.Put, "a", "1"), new ModelOperation(EventKind.Put, "b", "2"), new ModelOperation(EventKind.Put, "c", "3"));
        var runs = new List<string>();
        var watcher = bench.Hub.Join(Everything, bench.Events[0].Etag, withSets: false, withPrevious: false);
        bench.Hub.CatchUp(watcher, page => runs.AddRange(page.Runs.SelectMany(
            run => Enumerable.Range(run.First, run.Count).Select(index => $"{run.Batch.Events[index].Kind} {run.Batch.Events[index].Etag}"))));
        bench.Run();
        Assert.Equal(bench.Events.Skip(1).Select(static one => $"{one.Kind} {one.Etag}"), runs);
        bench.Hub.Leave(watcher);
    }

    [Fact]
    public void Join_AfterAPositionThatTheJournalNoLongerHas_IsToldTheOldest()
    {
        using var bench = new WatchBench();
        bench.Put("a", "0");
        var old = bench.Committed;
        Fill(bench, 100);
        bench.Store.Checkpoint();
        bench.Put("a", "1");
        bench.Store.Checkpoint();
        var watcher = new TestWatcher(bench, Everything);
        watcher.Begin(old);
        Drain(bench, [watcher], mayEnd: true);
        Assert.Equal(TailState.Compacted, watcher.Ended?.State);
        var oldest = watcher.Ended!.Value.Oldest;
        Assert.True(oldest > old);
        watcher.Begin(oldest);
        Drain(bench, [watcher]);
        Assert.Equal(bench.Committed, watcher.Position);
    }

    [Theory]
    [InlineData(0UL, 1_000UL, TailState.Ahead)]
    [InlineData(7UL, 3UL, TailState.Ahead)]
    [InlineData(1UL, 1_000UL, TailState.Foreign)]
    internal void Join_AfterAPositionOfAnotherHistory_IsToldSo(ulong epochsLater, ulong changesLater, TailState expected)
    {
        using var bench = new WatchBench();
        bench.Put("a", "0");
        var last = bench.Committed;
        if (expected == TailState.Foreign)
        {
            // Another epoch begins, so the earlier one never had that many changes.
            bench.Reopen();
            epochsLater = 0;
        }
        var watcher = new TestWatcher(bench, Everything);
        watcher.Begin(new Etag(last.Epoch + epochsLater, last.Change + changesLater));
        Drain(bench, [watcher], mayEnd: true);
        Assert.Equal(expected, watcher.Ended?.State);
    }

    [Fact]
    public void Watcher_ThatIsSlow_LagsInTheJournalAndNotInMemory()
    {
        using var bench = new WatchBench(keptBytes: 4 << 10, journalBytes: 4 << 20);
        var watcher = new TestWatcher(bench, Everything, withPrevious: true);
        watcher.Begin();
        for (var round = 0; round < 10; round++)
        {
            Fill(bench, 50);
            bench.Store.Checkpoint();
            bench.Run();
        }
        Assert.Equal(0, watcher.Watcher.Newest.Count);
        Assert.Empty(watcher.Watcher.Pending);
        Assert.True(bench.Hub.Lag >= 500);
        Drain(bench, [watcher]);
        Assert.Equal(500, watcher.Seen.Count);
        Assert.True(watcher.CatchUps > 0);
        Assert.Equal(0, bench.Hub.Lag);
    }

    /// <summary>etcd #17529 and #18089: slow watchers that asked for previous values lost events.</summary>
    [Fact]
    public void SlowWatchersWithPreviousValues_EightHundred_MissNothing()
    {
        using var bench = new WatchBench(keptBytes: 8 << 10, journalBytes: 16 << 20);
        var watchers = Enumerable.Range(0, 800)
            .Select(index => new TestWatcher(bench, index % 8 == 0 ? Everything : PrefixOf($"k{index % 10}"), withPrevious: true)).ToList();
        watchers.ForEach(static watcher => watcher.Begin());
        var random = new Random(1);
        for (var index = 0; index < 300; index++)
        {
            bench.Put($"k{random.Next(10)}", $"{index}");
            if (index % 10 == 0)
                bench.Run();
            if (index % 100 == 0)
                bench.Store.Checkpoint();
            // One of them takes something.
            watchers[random.Next(watchers.Count)].Step();
        }
        Drain(bench, watchers);
        Assert.All(watchers, watcher => Assert.Equal(bench.Committed, watcher.Position));
        Assert.Equal(300, watchers[0].Seen.Count);
    }

    [Fact]
    public void PreviousValues_OfRecentChanges_AreKnown()
    {
        using var bench = new WatchBench();
        bench.Put("a", "0");
        var watcher = new TestWatcher(bench, PrefixOf("a"), withPrevious: true);
        watcher.Begin();
        bench.Run();
        bench.Put("a", "1");
        bench.Write(
            new ModelOperation(EventKind.Put, "a", "2"), new ModelOperation(EventKind.Delete, "a"), new ModelOperation(EventKind.Put, "a", "3"),
            new ModelOperation(EventKind.Put, "ab", "4"));
        bench.Write(new ModelOperation(EventKind.DeleteRange, "a", "b"), new ModelOperation(EventKind.Put, "ab", "5"));
        Drain(bench, [watcher]);
        Assert.Equal(7, watcher.Seen.Count);
        Assert.Equal(6, watcher.PreviousKnown);
    }

    /// <summary>65,536 changed values, each a part of a record that stayed in memory with it, were held and not counted.</summary>
    [Fact]
    public void PreviousValues_BeyondEightMebibytesOfChanges_AreUnknownUntilTheNextSnapshot()
    {
        const int Records = 20;
        const int ValueBytes = 512 << 10;
        // After the sixteenth the changes have more than 8 MiB, with their keys.
        const int Known = 16;
        using var bench = new WatchBench(keptBytes: 64 << 20, journalBytes: 64 << 20);
        for (var index = 0; index < Records; index++)
            bench.Put($"k{index:d2}", "0");
        var watcher = new TestWatcher(bench, PrefixOf("k"), withPrevious: true);
        watcher.Begin();
        bench.Run();
        // The hub does not run meanwhile, and takes a snapshot when it has read all of them.
        for (var index = 0; index < Records; index++)
            bench.Put($"k{index:d2}", new string('x', ValueBytes));
        Drain(bench, [watcher]);
        Assert.Equal((Records, Known), (watcher.Seen.Count, watcher.PreviousKnown));
        bench.Put("k00", "1");
        Drain(bench, [watcher]);
        Assert.Equal((Records + 1, Known + 1), (watcher.Seen.Count, watcher.PreviousKnown));
    }

    [Fact]
    public void PreviousValues_BeyondEightMebibytesOfOneRecord_AreUnknown()
    {
        const int Keys = 10;
        const int Known = 8;
        using var bench = new WatchBench(keptBytes: 64 << 20, journalBytes: 64 << 20);
        for (var index = 0; index < Keys; index++)
            bench.Put($"k{index:d2}", new string('x', 1 << 20));
        var watcher = new TestWatcher(bench, PrefixOf("k"), withPrevious: true);
        watcher.Begin();
        bench.Run();
        bench.Write([.. Enumerable.Range(0, Keys).Select(static index => new ModelOperation(EventKind.Delete, $"k{index:d2}"))]);
        Drain(bench, [watcher]);
        Assert.Equal((Keys, Known), (watcher.Seen.Count, watcher.PreviousKnown));
    }

    /// <summary>The pump runs on the pool, for all watchers of a shard. It waited for the disk once for each leaf.</summary>
    [Fact]
    public void PreviousValues_OnLeavesThatHaveLeftMemory_AreAskedForBeforeTheFirstIsWaitedFor()
    {
        const int Keys = 60;
        using var bench = new WatchBench(keptBytes: 64 << 20, journalBytes: 64 << 20);
        for (var index = 0; index < Keys; index++)
            bench.Put($"k{index:d2}", new string('x', 1_900));
        bench.Store.Checkpoint();
        var watcher = new TestWatcher(bench, PrefixOf("k"), withPrevious: true);
        watcher.Begin();
        bench.Run();
        // The first record brings the branch back. The hub does not run meanwhile.
        bench.Put("k00", "0");
        bench.Write([.. Enumerable.Range(0, Keys).Select(static index => new ModelOperation(EventKind.Delete, $"k{index:d2}"))]);
        var (begun, read, waits) = (new HashSet<long>(), new HashSet<long>(), new List<(long Offset, int Begun)>());
        bench.Store.Disk.BeginsRead = (offset, _) =>
        {
            if (read.Contains(offset))
                return false;
            begun.Add(offset);
            return true;
        };
        bench.Store.Disk.Fault = call =>
        {
            if (call.Operation == "Read" && call.Path.EndsWith("/data", StringComparison.Ordinal) && read.Add(call.Offset))
                waits.Add((call.Offset, begun.Count));
            return DiskFault.None;
        };
        LeaveMemory(bench);
        Drain(bench, [watcher]);
        (bench.Store.Disk.BeginsRead, bench.Store.Disk.Fault) = (null, null);
        Assert.Equal((Keys + 1, Keys + 1), (watcher.Seen.Count, watcher.PreviousKnown));
        // The branch and the leaf of the first record were waited for before.
        var waitsOfMany = waits.Skip(2).ToList();
        Assert.True(waitsOfMany.Count > Keys / 5, $"Only {waitsOfMany.Count} leaves were read.");
        Assert.All(waitsOfMany, wait => Assert.Contains(wait.Offset, begun));
        Assert.All(waitsOfMany, wait => Assert.Equal(begun.Count, wait.Begun));
    }

    [Fact]
    public void Bookmarks_OfAQuiescentShard_ComeEachSecondWithTheNewestPosition()
    {
        using var bench = new WatchBench();
        var watcher = new TestWatcher(bench, PrefixOf("none"));
        watcher.Begin();
        for (var second = 1; second <= 3; second++)
        {
            bench.Put("a", $"{second}");
            bench.Run();
            bench.LetTimePass();
            watcher.Step();
            Assert.Equal((second, bench.Committed), (watcher.Bookmarks, watcher.Position));
        }
    }

    /// <summary>A hub must not compare each event with each of ten thousand ranges.</summary>
    [Fact]
    public void RangeIndex_OfRandomRanges_FindsThoseThatHaveTheEvent() => Seeds.Run(20, random =>
    {
        using var bench = new WatchBench();
        var index = new RangeIndex();
        var watchers = new List<Watcher>();
        for (var step = 0; step < 600; step++)
        {
            if (watchers.Count > 0 && random.Next(3) == 0)
            {
                var place = random.Next(watchers.Count);
                index.Remove(watchers[place]);
                watchers.RemoveAt(place);
            }
            else
            {
                watchers.Add(new Watcher(bench.Hub, RangeOf(random), withSets: false, withPrevious: random.Next(2) == 0, pool: null));
                index.Add(watchers[^1]);
            }
            var operation = OperationOf(random);
            var happened = new WatchEvent
            {
                Kind = operation.Kind, Key = StoreBench.Text(operation.Key),
                End = operation.Kind == EventKind.DeleteRange ? StoreBench.Text(operation.Value) : default
            };
            var found = new List<RangeIndex.Group>();
            index.Find(happened, found);
            Assert.Equal(watchers.Where(watcher => happened.IsIn(watcher.Range)).ToHashSet(), found.SelectMany(static group => group.Watchers).ToHashSet());
            Assert.All(found, static group => Assert.Equal(group.Watchers.Count(static watcher => watcher.WithPrevious), group.PreviousCount));
        }
    });

    [Fact]
    public void Watcher_OfARecordThatIsNotCommitted_SeesNothing()
    {
        using var replica = new ReplicaBench(new(1));
        replica.Lead(1);
        replica.Commit(replica.Store.Log.Last.Etag);
        var pool = new StepExecutor();
        var hub = new WatchHub(() => replica.Store, new WatchLimits(0, static () => 1 << 20), replica.Time, static failure => throw failure, pool);
        var watcher = hub.Join(Everything, after: null, withSets: false, withPrevious: false);
        var runs = new List<WatchRun>();
        _ = replica.Put("a", "1");
        var first = replica.Store.Log.Last.Etag;
        // What a leader appends and never commits is truncated, and a position in it must not have been given out.
        _ = replica.Put("a", "2");
        Run();
        Assert.Equal(WatchStep.Wait, hub.Next(watcher, 1 << 20, runs, out _));
        replica.Commit(first);
        Run();
        Assert.Equal(WatchStep.Send, hub.Next(watcher, 1 << 20, runs, out var position));
        Assert.Equal((1, first), (runs.Count, position));
        Assert.True(hub.TryTake(watcher, runs, position));
        replica.Store.Writes.StopLeading();
        replica.Store.Committed.Truncate(position);
        Run();
        Assert.Equal(WatchStep.Wait, hub.Next(watcher, 1 << 20, runs, out _));
        hub.Dispose();
        Run();

        void Run()
        {
            hub.Wake();
            do
                replica.Run();
            while (pool.RunOne());
        }
    }

    [Fact]
    public void Hub_WithoutWatchers_HoldsNothing()
    {
        using var bench = new WatchBench();
        var watcher = new TestWatcher(bench, Everything, withPrevious: true);
        watcher.Begin();
        bench.Run();
        Assert.True(bench.Store.Store.Pages.Roots.Readers.Any());
        watcher.Leave();
        bench.Hub.Dispose();
        bench.Run();
        Assert.False(bench.Store.Store.Pages.Roots.Readers.Any());
        Fill(bench, 100);
        bench.Store.Checkpoint();
        bench.Put("a", "1");
        bench.Store.Checkpoint();
        Assert.Equal(0, bench.Store.Store.Statistics.JournalKeptBytes);
    }

    private static void LeaveMemory(WatchBench bench)
    {
        bench.Store.Disk.IsInMemory = static _ => false;
        Span<byte> inMemory = stackalloc byte[4_096];
        var (page, forgotten) = (0L, 0L);
        do
            page = bench.Store.Store.Pages.Space.ForgetEvicted(page, inMemory, ref forgotten);
        while (page > 0);
        bench.Store.Disk.IsInMemory = null;
        Assert.NotEqual(0, forgotten);
    }

    private static void Fill(WatchBench bench, int count)
    {
        for (var index = 0; index < count; index++)
            bench.Put($"k{index % 10}", new string('x', 500) + index);
    }

    private static void Step(WatchBench bench, TestWatcher watcher)
    {
        watcher.Step();
        if (watcher.Ended is not var (state, oldest))
            return;
        Assert.Equal(TailState.Compacted, state);
        Assert.True(oldest > watcher.Position, $"{watcher.Position} was refused although the journal begins after {oldest}.");
        watcher.Begin(bench.Committed);
    }

    // Until every watcher has everything.
    private static void Drain(WatchBench bench, List<TestWatcher> watchers, bool mayEnd = false)
    {
        for (var round = 0; round < 10_000; round++)
        {
            bench.Hub.Wake();
            bench.Run();
            if (round % 10 == 9)
                bench.LetTimePass();
            foreach (var watcher in watchers)
            {
                if (mayEnd)
                    watcher.Step();
                else
                    Step(bench, watcher);
            }
            if (watchers.TrueForAll(watcher => watcher.Ended is not null || watcher.Position == bench.Committed))
                return;
        }
        Assert.Fail($"A watcher does not catch up: {string.Join(", ", watchers.Select(static watcher => $"{watcher.Watcher.State} {watcher.Position}"))}");
    }

    private static WatchedRange PrefixOf(string prefix) => new(StoreBench.Text(prefix), StoreBench.Text(prefix[..^1] + (char)(prefix[^1] + 1)));

    private static WatchedRange RangeOf(Random random) => random.Next(4) switch
    {
        0 => Everything,
        1 => PrefixOf($"k{random.Next(10)}"),
        2 => new WatchedRange(StoreBench.Text($"k{random.Next(5)}"), StoreBench.Text($"k{random.Next(5, 10)}")),
        _ => new WatchedRange(StoreBench.Text($"k{random.Next(10)}"), default),
    };

    private static ModelOperation OperationOf(Random random) => random.Next(8) switch
    {
        0 => new ModelOperation(EventKind.DeleteRange, $"k{random.Next(5)}", $"k{random.Next(5, 10)}"),
        1 or 2 => new ModelOperation(EventKind.Delete, $"k{random.Next(10)}{random.Next(5)}"),
        _ => new ModelOperation(EventKind.Put, $"k{random.Next(10)}{random.Next(5)}", new string('v', random.Next(200)) + random.Next(1_000)),
    };
}
