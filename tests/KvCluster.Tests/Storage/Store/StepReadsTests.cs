using System.Globalization;
using KvCluster.Disk;
using KvCluster.Storage.Context;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>
/// How many pages a step of the writer reads from the disk, for each kind of work, at the leader and at a follower, when nothing is in memory (F51). 4,000 keys
/// that were due at once read 3,734 pages in one step, and again at each follower: the shards of that thread sent no heartbeats meanwhile.
/// </summary>
public sealed class StepReadsTests : IDisposable
{
    private const int Keys = 1_000;
    private const int LifeMs = 60_000;

    /// <summary>
    /// A step notices that it has read enough behind the read, and what it has found is then applied, which may merge leaves with their neighbours.
    /// </summary>
    private static int ReadsMax => (2 * Options.StepReadsMax) + ReadAhead.KeysMin;

    private static StoreOptions Options { get; } = Retaining with { RecentBodyBytesMax = 1 << 30, StepReadsMax = 16 };

    private static StoreOptions Retaining => StoreBench.SmallOptions with { RetainedJournalBytes = 1 << 30 };
    private readonly SimulatedDisk _disk = new();
    private readonly SimulatedDisk _followersDisk = new();
    private readonly HashSet<(SimulatedDisk, long)> _inMemory = [];
    private readonly StepExecutor _followersPrefetch = new();
    private StoreBench _leader;
    private int _reads;
    private int _readsMost;

    public StepReadsTests() => _leader = new StoreBench(_disk, options: Options, prefetches: true);

    /// <summary>What is done to a store with 1,000 keys, four on a leaf.</summary>
    public enum Work
    {
        Expire,
        SessionIsDue,
        EndSession,
        Deletes,
        SmallRequests,
        Conditions,
        RangeCondition,
        RangeOfLargeValues,
        RangeOfKeys,
        Scan,
        Touches,
        MembersOfSets,
        SetOfManyLeaves,
        Puts,
        SmallPuts,
        PutsThatKeep,
        NumberedPuts,
        Increments,
        Gets,
        DeletesOfSets,
        DeletesOfLargeSets,
    }

    public static TheoryData<Work> Works => [.. Enum.GetValues<Work>()];

    public void Dispose()
    {
        _leader.Dispose();
        _followersDisk.Dispose();
    }

    [Theory]
    [MemberData(nameof(Works))]
    public void Step_OverColdData_ReadsNoMoreThanItsBound(Work work)
    {
        Fill(work);
        _leader.Checkpoint();
        var (bodies, before) = (BodiesAfter(Etag.None), _leader.Store.Log.Last.Etag);
        _leader.Close();
        BecomeCold(_disk, () => _leader.IsWriterStep);
        _leader.Open();
        _readsMost = 0;
        Do(work);
        Assert.InRange(_readsMost, 0, ReadsMax);
        // Leaves of keys and members that are deleted as a whole are mostly not read.
        Assert.True(_inMemory.Count > 2 * ReadsMax || work is Work.RangeOfKeys or Work.DeletesOfLargeSets, $"Only {_inMemory.Count} pages were read at all.");
        _disk.Fault = null;
        Follow(bodies, BodiesAfter(before));
    }

    // A store just made looked up each request on another thread until 8,192 keys were found in memory: with 64 shards all of a minute's puts.
    [Fact]
    public void Open_StoreWithoutPages_LooksUpNothingAhead()
    {
        _leader.Open();
        Assert.True(_leader.Store.Requests.Prefetch is { IsCold: false });
        Assert.Equal(WriteOutcome.Applied, _leader.Write(static request => request.Put("key"u8, "v"u8)).Outcome);
        _leader.Checkpoint();
        _leader.Close();
        _leader.Open();
        Assert.True(_leader.Store.Requests.Prefetch is { IsCold: true });
    }

    /// <summary>Puts are answered while keys expire: none waits for all of them.</summary>
    [Fact]
    public void Puts_WhileManyKeysAreDue_AreAnsweredBetweenThem()
    {
        Fill(Work.Expire);
        _leader.Checkpoint();
        _leader.Close();
        BecomeCold(_disk, () => _leader.IsWriterStep);
        _leader.Open();
        _leader.Time.Advance(TimeSpan.FromMilliseconds(LifeMs));
        for (var put = 0; put < 10; put++)
        {
            Assert.Equal(WriteOutcome.Applied, _leader.Write(static request => request.Put("zz"u8, "v"u8)).Outcome);
            if (put == 0)
                Assert.InRange(_leader.Store.Pages.Roots.Count(TreeId.Kv), (ulong)(Keys - LifeEnds.CountAhead), (ulong)Keys + 1);
        }
    }

    /// <summary>Where nobody reads ahead, a step ends when it has read enough, and the next one goes on.</summary>
    [Fact]
    public void Expiries_WithoutAnybodyWhoReadsAhead_EndTheStepAtItsBound()
    {
        _leader.Dispose();
        var disk = new SimulatedDisk();
        _leader = new StoreBench(disk, options: Options);
        Fill(Work.Expire);
        _leader.Checkpoint();
        _leader.Close();
        BecomeCold(disk, () => _leader.IsWriterStep);
        _leader.Open();
        _readsMost = 0;
        Do(Work.Expire);
        Assert.InRange(_readsMost, Options.StepReadsMax, ReadsMax);
    }

    /// <summary>A request that is put off is answered when its leadership ends, and so are those behind it.</summary>
    [Fact]
    public void StopLeading_WhileARequestWaitsForItsPages_AnswersIt()
    {
        Fill(Work.Deletes);
        _leader.Checkpoint();
        _leader.Close();
        BecomeCold(_disk, () => _leader.IsWriterStep);
        _leader.Open();
        _leader.PrefetchStands = true;
        var first = _leader.Submit(DeleteAll);
        var second = _leader.Submit(static request => request.Put("zz"u8, "v"u8));
        while (_leader.Store.Requests.Queue.Bytes == 0 || !_leader.Store.Requests.Queue.IsEmpty)
            Assert.True(_leader.Step());
        _leader.Store.Writes.StopLeading();
        _leader.RunUntilIdle();
        Assert.Equal(WriteOutcome.NotLeader, StoreBench.Answer(first).Outcome);
        Assert.Equal(WriteOutcome.NotLeader, StoreBench.Answer(second).Outcome);
        _leader.PrefetchStands = false;
        _leader.RunUntilIdle();
    }

    /// <summary>A follower that lags gets records from the disk, on the writer. Each took a read, and there are hundreds in a frame.</summary>
    [Fact]
    public void ReadBodies_OfRecordsThatHaveLeftMemory_TakesOneReadForAllOfASegment()
    {
        using var bench = new StoreBench(options: Retaining with { SegmentBytesFirst = 1 << 20, SegmentBytesMin = 1 << 20, SegmentBytesMax = 1 << 20 });
        bench.Open();
        for (var put = 0; put < 100; put++)
            bench.Write(request => request.Put(Key(put), new byte[1_000]));
        var bodies = new List<ReadOnlyMemory<byte>>();
        Assert.True(bench.Store.Reader.ReadBodies(Etag.None, int.MaxValue, bodies) >= 100);
        var inMemory = bodies.ConvertAll(static body => body.ToArray());
        bench.Checkpoint();
        bench.Close();
        bench.Open();
        var reads = 0;
        bench.Disk.Fault = call =>
        {
            reads += call.Operation == "Read" ? 1 : 0;
            return DiskFault.None;
        };
        bodies.Clear();
        Assert.True(bench.Store.Reader.ReadBodies(Etag.None, 60_000, bodies) is >= 50 and < 60);
        Assert.Equal(1, reads);
        Assert.All(bodies.Zip(inMemory), static both => Assert.Equal(both.Second, both.First.ToArray()));
        bodies.Clear();
        Assert.True(bench.Store.Reader.ReadBodies(Etag.None, int.MaxValue, bodies) >= inMemory.Count);
        Assert.All(bodies.Zip(inMemory), static both => Assert.Equal(both.Second, both.First.ToArray()));
        bench.Disk.Fault = null;
    }

    /// <summary>Watchers that were far behind had their records read on the thread of the checkpoints, which waited for all of them.</summary>
    [Fact]
    public void Tail_OfOldRecords_IsNotReadOnTheThreadOfTheCheckpoints()
    {
        var tails = new StepExecutor();
        using var bench = new StoreBench(options: StoreBench.SmallOptions with { RetainedJournalBytes = 1 << 30 }, tailReads: tails);
        bench.Open();
        for (var put = 0; put < 50; put++)
            bench.Write(request => request.Put(Key(put), new byte[1_000]));
        bench.Checkpoint();
        bench.Close();
        bench.Open();
        TailPage? page = null;
        bench.Store.Tail.Read(Etag.None, int.MaxValue, withSnapshot: false, read => page = read);
        bench.RunUntilIdle();
        Assert.Null(page);
        Assert.Equal(1, tails.Count);
        tails.RunOne();
        Assert.True(page!.Bodies.Count >= 50);
        Assert.DoesNotContain(page.Bodies, static body => body.IsEmpty);
    }

    private static byte[] Key(int index) => StoreBench.Text(string.Create(CultureInfo.InvariantCulture, $"k{index:D5}"));

    private static void DeleteAll(WriteRequest request)
    {
        for (var key = 0; key < Keys; key++)
            request.Delete(Key(key));
    }

    private void Fill(Work work)
    {
        _leader.Open();
        if (work is Work.SessionIsDue or Work.EndSession or Work.PutsThatKeep)
            _leader.Write(static request => request.OpenSession(1, ReplicaBench.Owner, LifeMs));
        for (var first = 0; first < Keys; first += 50)
        {
            Assert.Equal(WriteOutcome.Applied, _leader.Write(request =>
            {
                for (var key = first; key < first + 50; key++)
                    FillKey(request, work, key);
            }).Outcome);
        }
    }

    private static void FillKey(WriteRequest request, Work work, int key)
    {
        var value = new byte[work == Work.Conditions || (work == Work.RangeOfLargeValues && key % 4 == 0) ? 9_000 : 1_900];
        switch (work)
        {
            case Work.Expire:
                request.Put(Key(key), value, new PutTerms(LifeMs, 0, IsNumbered: false));
                break;
            case Work.SessionIsDue or Work.EndSession:
                request.Put(Key(key), value, new PutTerms(0, 1, IsNumbered: false));
                break;
            case Work.PutsThatKeep:
                request.Put(Key(key), value, new PutTerms(LifeMs, 1, IsNumbered: false));
                break;
            case Work.Increments when key % 4 == 0:
                request.Put(Key(key), "1"u8);
                break;
            case Work.MembersOfSets or Work.DeletesOfSets:
                request.SetAdd(Key(key), value[..1_000]);
                request.SetAdd(Key(key), value[..999]);
                break;
            case Work.SetOfManyLeaves or Work.DeletesOfLargeSets:
                var member = new byte[1_000];
                Key(key).CopyTo(member, 0);
                request.SetAdd(Key(key % 4), member);
                break;
            default:
                request.Put(Key(key), value);
                break;
        }
    }

    private void Do(Work work)
    {
        switch (work)
        {
            case Work.Expire:
                Pass(LifeMs);
                Assert.Equal(0ul, Count(TreeId.Kv));
                break;
            case Work.SessionIsDue:
                for (var passed = 0; passed < 2 * LifeMs; passed += 500)
                    Pass(500);
                Assert.Equal(0ul, Count(TreeId.Kv));
                break;
            case Work.EndSession:
                Assert.Equal(Keys, Answer(static request => request.EndSession(1)).Deleted);
                break;
            case Work.Deletes:
                Assert.Equal(Keys, Answer(DeleteAll).Deleted);
                break;
            case Work.SmallRequests:
                for (var key = 0; key < Keys; key++)
                    _leader.Submit(request => request.Delete(Key(key)));
                Run();
                Assert.Equal(0ul, Count(TreeId.Kv));
                break;
            case Work.Conditions:
                Answer(request =>
                {
                    for (var key = 0; key < Keys; key++)
                        request.AddCondition(Key(key), ConditionKind.Exists);
                    request.Put("zz"u8, "v"u8);
                });
                break;
            case Work.RangeCondition:
                Answer(static request =>
                {
                    request.AddRangeCondition("k"u8, "l"u8, null, Etag.None);
                    request.Put("zz"u8, "v"u8);
                }, WriteOutcome.ConditionFailed);
                Answer(request =>
                {
                    request.AddRangeCondition("k"u8, "l"u8, null, EtagOf(Key(Keys - 1)));
                    request.Put("zz"u8, "v"u8);
                });
                break;
            case Work.RangeOfLargeValues or Work.RangeOfKeys:
                for (var more = true; more;)
                    more = Answer(static request => request.DeleteRange("k"u8, "l"u8)).IsPartial;
                Assert.Equal(0ul, Count(TreeId.Kv));
                break;
            case Work.Scan:
                Answer(static request =>
                {
                    request.WantsResults = true;
                    request.Put("zz"u8, "v"u8);
                    request.Scan("k"u8, "l"u8, 80, keysOnly: false);
                    request.Scan("k"u8, "l"u8, Keys, keysOnly: true);
                });
                break;
            case Work.Touches:
                Answer(request =>
                {
                    for (var key = 0; key < Keys; key++)
                        request.Touch(Key(key), LifeMs);
                });
                break;
            case Work.MembersOfSets:
                Answer(static request =>
                {
                    for (var key = 0; key < Keys; key++)
                        request.SetRemove(Key(key), new byte[1_000]);
                });
                break;
            case Work.Puts:
                Answer(static request =>
                {
                    for (var key = 0; key < Keys; key++)
                        request.Put(Key(key), "v"u8);
                });
                break;
            case Work.SmallPuts:
                // One on each leaf, and then the next one. They are applied together, when their record is on its way to the disk. Nothing is read ahead of
                // them.
                _leader.PrefetchStands = true;
                for (var index = 0; index < Keys; index++)
                    _leader.Submit(request => request.Put(Key((index * 4 % Keys) + (index * 4 / Keys)), "v"u8));
                Run();
                _leader.PrefetchStands = false;
                Run();
                Assert.Equal("v", _leader.Read("k00999"));
                break;
            case Work.PutsThatKeep:
                Answer(static request =>
                {
                    for (var key = 0; key < Keys; key++)
                        request.Put(Key(key), "v"u8, new PutTerms(0, 0, IsNumbered: false, KeepsExpiry: true, KeepsOwner: true));
                });
                Assert.Equal((ulong)Keys, Count(TreeId.Expiry));
                break;
            case Work.NumberedPuts:
                Answer(static request =>
                {
                    for (var key = 0; key < Keys; key++)
                        request.Put(Key(key), "v"u8, new PutTerms(0, 0, IsNumbered: true));
                });
                Assert.Equal(2ul * Keys, Count(TreeId.Kv));
                break;
            case Work.Increments:
                Answer(static request =>
                {
                    for (var key = 0; key < Keys; key += 4)
                        request.Increment(Key(key), 1);
                });
                Assert.Equal("2", _leader.Read("k00996"));
                break;
            case Work.Gets:
                Answer(static request =>
                {
                    request.WantsResults = true;
                    request.Put("zz"u8, "v"u8);
                    for (var key = 0; key < Keys; key += 2)
                        request.Get(Key(key));
                });
                break;
            case Work.DeletesOfSets:
                Answer(static request =>
                {
                    for (var key = 0; key < Keys; key++)
                        request.SetDelete(Key(key));
                });
                Assert.Equal(0ul, Count(TreeId.Sets));
                break;
            case Work.DeletesOfLargeSets:
                for (var set = 0; set < 4; set++)
                {
                    while (Answer(request => request.SetDelete(Key(set))).IsPartial)
                    {
                    }
                }
                Assert.Equal(0ul, Count(TreeId.Sets));
                break;
            default:
                Answer(static request =>
                {
                    for (var key = 0; key < Keys; key++)
                    {
                        var member = new byte[1_000];
                        Key(key).CopyTo(member, 0);
                        request.SetRemove(Key(key % 4), member);
                    }
                });
                break;
        }
    }

    private WriteResult Answer(Action<WriteRequest> fill, WriteOutcome outcome = WriteOutcome.Applied)
    {
        var answer = _leader.Submit(fill);
        Run();
        Assert.Equal(outcome, StoreBench.Answer(answer).Outcome);
        return StoreBench.Answer(answer);
    }

    private void Pass(int milliseconds)
    {
        _leader.Time.Advance(TimeSpan.FromMilliseconds(milliseconds));
        Run();
    }

    private void Run()
    {
        do
        {
            _readsMost = Math.Max(_readsMost, _reads);
            _reads = 0;
        }
        while (_leader.Step());
    }

    private ulong Count(TreeId tree) => _leader.Store.Pages.Roots.Count(tree);

    private Etag EtagOf(byte[] key)
    {
        using var snapshot = _leader.Standalone.OpenSnapshot();
        Assert.True(snapshot.TryGet(TreeId.Kv, key, out var stored));
        _ = KvValue.Read(stored, out var etag);
        return etag;
    }

    private List<ReadOnlyMemory<byte>> BodiesAfter(Etag etag)
    {
        var bodies = new List<ReadOnlyMemory<byte>>();
        Assert.True(_leader.Store.Reader.ReadBodies(etag, int.MaxValue, bodies) >= 0);
        return bodies;
    }

    /// <summary>A replica has the records of the fill in its file and applies those of the work.</summary>
    private void Follow(List<ReadOnlyMemory<byte>> fill, List<ReadOnlyMemory<byte>> work)
    {
        using var follower = new ReplicaBench(new(2), Options, _followersDisk, prefetch: _followersPrefetch);
        Append(follower, fill);
        var checkpoint = follower.Store.Checkpoints.RequestAsync();
        RunAll(follower);
        Assert.True(checkpoint.IsCompletedSuccessfully);
        _inMemory.Clear();
        BecomeCold(_followersDisk, () => !_followersPrefetch.IsRunning);
        follower.Reopen();
        _readsMost = 0;
        Append(follower, work);
        Assert.InRange(_readsMost, 0, ReadsMax);
        _followersDisk.Fault = null;
        Assert.Equal(Digest(), follower.Digest());
    }

    private byte[] Digest()
    {
        using var snapshot = _leader.Standalone.OpenSnapshot();
        return KvCluster.Storage.Maintenance.TreeDigest.Of(snapshot);
    }

    private void Append(ReplicaBench follower, List<ReadOnlyMemory<byte>> bodies)
    {
        foreach (var body in bodies)
        {
            Assert.True(follower.Store.TryAppend(body, out _));
            follower.Run();
        }
        Note();
        follower.Commit(follower.Store.Log.Last.Etag);
        Note();
        RunAll(follower);
        Assert.Equal(follower.Store.Log.Last.Etag, follower.Store.Pages.Roots.PublishedEtag);
    }

    private void RunAll(ReplicaBench follower)
    {
        do
        {
            Note();
            follower.Store.Follower.ApplyMore();
            Note();
            follower.Run();
        }
        while (_followersPrefetch.RunOne() || follower.Store.Committed.IsApplying);
    }

    private void Note()
    {
        _readsMost = Math.Max(_readsMost, _reads);
        _reads = 0;
    }

    /// <summary>Nothing of a data file is in memory. From here on each read is counted that is the writer's.</summary>
    private void BecomeCold(SimulatedDisk disk, Func<bool> isWriter)
    {
        disk.BeginsRead = (offset, _) => _inMemory.Add((disk, offset));
        disk.Fault = call =>
        {
            if (call.Operation == "Read" && call.Path.EndsWith("/data", StringComparison.Ordinal))
            {
                _inMemory.Add((disk, call.Offset));
                _reads += isWriter() ? 1 : 0;
            }
            return DiskFault.None;
        };
    }
}
