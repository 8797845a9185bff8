using KvCluster.Storage.Encoding;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;
using KvCluster.Tests.Storage.Store;

namespace KvCluster.Tests.Storage.Sessions;

/// <summary>Sessions with a lifetime at a store that leads, and the keys that they own.</summary>
public sealed class SessionLifetimeTests : IDisposable
{
    private const int LifetimeMs = 2_000;
    private readonly StoreBench _bench = new();

    public SessionLifetimeTests() => _bench.Open();

    private SessionLifetimes Lifetimes => _bench.Store.Writes.Lifetimes!;

    public void Dispose() => _bench.Dispose();

    [Fact]
    public void Session_WithoutAKeepAlive_EndsOnceWithItsKeys()
    {
        var opened = Open(1);
        var other = Open(2);
        Put("a", opened);
        Put("b", opened);
        Put("c", other);
        Put("b", Etag.None);
        Pass(LifetimeMs - 100, keep: [2]);
        Assert.Equal(["a", "b", "c"], _bench.ReadAllKeys().Keys);
        Pass(400, keep: [2]);
        Assert.Equal(["b", "c"], _bench.ReadAllKeys().Keys);
        Assert.Equal(["DeleteOwned a", "SessionEnd 1"], LifeBench.Ends(_bench));
        Assert.Equal(0ul, Lifetimes.KeepAlive(1, out _));
        Assert.Equal((0, 2), LifeBench.Entries(_bench));
        LifeBench.CheckFile(_bench);
        Pass(LifetimeMs + 400);
        Assert.Equal(["b"], _bench.ReadAllKeys().Keys);
        Assert.Equal(["DeleteOwned a", "SessionEnd 1", "DeleteOwned c", "SessionEnd 2"], LifeBench.Ends(_bench));
        Assert.Equal((0, 0), LifeBench.Entries(_bench));
    }

    /// <summary>A key that was due to expire and to end with its session in the same record ended twice: watchers were told of two deletes.</summary>
    [Fact]
    public void Session_ThatEndsWhenItsKeyIsLate_EndsTheKeyOnce()
    {
        var opened = Open(1);
        var expiry = (ulong)(_bench.Store.Pages.Roots.Published.ShardTime / 1_000) + LifetimeMs - 300;
        Assert.Equal(WriteOutcome.Applied, _bench.Write(request => request.Put("k"u8, "v"u8, new KeyLife(expiry, opened))).Outcome);
        Pass(LifetimeMs - 400);
        // Both are due now. A longer pause would restart the countdown.
        _bench.Time.Advance(TimeSpan.FromMilliseconds(900));
        _bench.RunUntilIdle();
        Pass(1_000);
        Assert.Empty(_bench.ReadAllKeys().Keys);
        Assert.Equal(["DeleteOwned k", "SessionEnd 1"], LifeBench.Ends(_bench));
        Assert.Equal((0, 0), LifeBench.Entries(_bench));
    }

    [Fact]
    public void KeepAlive_RestartsTheCountdown()
    {
        Put("k", Open(1));
        for (var turn = 0; turn < 20; turn++)
        {
            Pass(LifetimeMs - 200);
            Assert.Equal((ulong)LifetimeMs, Lifetimes.KeepAlive(1, out _));
        }
        Assert.Equal(0ul, Lifetimes.KeepAlive(77, out _));
        Assert.Equal("v", _bench.Read("k"));
    }

    [Fact]
    public void EndSession_RemovesTheKeysThatItStillOwns()
    {
        var opened = Open(1);
        foreach (var key in (string[])["a", "b", "c", "d"])
            Put(key, opened);
        _bench.Write(request => request.DeleteRange("a"u8, "b"u8));
        Put("a", Etag.None);
        _bench.Write(request => request.Delete("b"u8));
        var ended = _bench.Write(request => request.EndSession(1));
        Assert.Equal((WriteOutcome.Applied, 2), (ended.Outcome, ended.Deleted));
        Assert.Equal(["a"], _bench.ReadAllKeys().Keys);
        Assert.Equal(WriteOutcome.SessionExpired, _bench.Write(request => request.EndSession(1)).Outcome);
        Assert.Equal(["DeleteOwned c", "DeleteOwned d", "SessionEnd 1"], LifeBench.Ends(_bench));
        Assert.Equal((0, 0), LifeBench.Entries(_bench));
        Assert.Equal(0, Lifetimes.Count);
    }

    /// <summary>Keys that went with a range counted until the session ended: one that owned no key was refused with TOO_MANY_OWNED.</summary>
    [Fact]
    public void Session_WhoseKeysWentWithRanges_CanOwnAsManyAgain()
    {
        Open(1);
        for (var round = 0; round < 3; round++)
        {
            for (var first = 0; first < OwnedKeys.KeysMax; first += 2_000)
                Assert.Equal(WriteOutcome.Applied, _bench.Write(request => Own(request, first, 2_000)).Outcome);
            Assert.Equal(WriteOutcome.TooManyOwned, _bench.Write(static request => Own(request, OwnedKeys.KeysMax, 1)).Outcome);
            for (var more = true; more;)
                more = _bench.Write(static request => request.DeleteRange("k"u8, "l"u8)).IsPartial;
        }
        Assert.Equal(WriteOutcome.Applied, _bench.Write(static request => Own(request, 0, 1)).Outcome);
        Assert.Equal((0, 2), LifeBench.Entries(_bench));
        LifeBench.CheckFile(_bench);
        Assert.Equal(1, _bench.Write(static request => request.EndSession(1)).Deleted);
        Assert.Equal((0, 0), LifeBench.Entries(_bench));
    }

    private static void Own(WriteRequest request, int first, int count)
    {
        for (var key = first; key < first + count; key++)
            request.Put(StoreBench.Text($"k{key:d5}"), "v"u8, new PutTerms(0, 1, IsNumbered: false));
    }

    [Fact]
    public void EndSession_InTheBatchOfItsRequests_EndsIt()
    {
        Open(1);
        var written = _bench.Submit(request =>
        {
            request.Identify(1, 1, 1);
            request.Put("k"u8, "v"u8);
        });
        var ended = _bench.Submit(request => request.EndSession(1));
        var late = _bench.Submit(request =>
        {
            request.Identify(1, 2, 1);
            request.Put("k"u8, "w"u8);
        });
        _bench.RunUntilIdle();
        Assert.Equal(
            (WriteOutcome.Applied, WriteOutcome.Applied, WriteOutcome.SessionExpired),
            (StoreBench.Answer(written).Outcome, StoreBench.Answer(ended).Outcome, StoreBench.Answer(late).Outcome));
        Assert.Equal("v", _bench.Read("k"));
    }

    [Fact]
    public void NewLeader_GivesTheFullLifetime_ToASessionThatWasHeard()
    {
        Put("k", Open(1));
        Pass(300);
        _bench.Close();
        _bench.Time.Advance(TimeSpan.FromHours(1));
        _bench.Open();
        Pass(LifetimeMs - 100);
        Assert.Equal("v", _bench.Read("k"));
        Pass(400);
        Assert.Null(_bench.Read("k"));
    }

    /// <summary>A session whose caller was silent for half of its lifetime, so that a record says what is left.</summary>
    [Fact]
    public void NewLeader_ContinuesFromWhatIsRecorded()
    {
        Put("k", Open(1));
        Pass((LifetimeMs / 2) + 200);
        Assert.Equal($"09{1:X32}", Assert.Single(Rests())[..34]);
        _bench.Close();
        _bench.Time.Advance(TimeSpan.FromHours(1));
        _bench.Open();
        Pass((LifetimeMs / 2) - 100);
        Assert.Equal("v", _bench.Read("k"));
        Pass(400);
        Assert.Null(_bench.Read("k"));
        Assert.Empty(Rests());
        LifeBench.CheckFile(_bench);
    }

    /// <summary>Leaders once gave every session its full lifetime, so that failovers kept one alive for ever whose caller was gone.</summary>
    [Fact]
    public void Session_WithoutACaller_EndsUnderRepeatedFailovers()
    {
        Put("k", Open(1));
        for (var leader = 0; leader < 5; leader++)
        {
            Assert.Equal("v", _bench.Read("k"));
            Pass((LifetimeMs / 4) + 200);
            _bench.Close();
            _bench.Open();
        }
        Pass(500);
        Assert.Null(_bench.Read("k"));
    }

    [Fact]
    public void KeepAlive_OfASessionWhoseRestIsRecorded_CountsAfterARecordForANewLeader()
    {
        Put("k", Open(1));
        Pass((LifetimeMs / 2) + 200);
        Assert.Equal((ulong)LifetimeMs, Lifetimes.KeepAlive(1, out var isRecorded));
        Assert.True(isRecorded);
        Assert.Equal(WriteOutcome.Applied, _bench.Write(static request => request.KeepSession(1)).Outcome);
        Assert.Empty(Rests());
        var last = _bench.Store.Log.Last.Etag;
        // Nothing is left to be said, neither of this session nor of one that does not exist.
        Assert.Equal(WriteOutcome.Applied, _bench.Write(static request =>
        {
            request.KeepSession(1);
            request.KeepSession(77);
        }).Outcome);
        Assert.Equal(last, _bench.Store.Log.Last.Etag);
        Assert.Equal((ulong)LifetimeMs, Lifetimes.KeepAlive(1, out isRecorded));
        Assert.False(isRecorded);
        _bench.Close();
        _bench.Open();
        Pass(LifetimeMs - 100);
        Assert.Equal("v", _bench.Read("k"));
    }

    /// <summary>A caller that sends a KeepAlive in each third of the lifetime, as the library does, costs no record.</summary>
    [Fact]
    public void Session_ThatIsKeptAlive_IsNotRecorded()
    {
        Open(1);
        var last = _bench.Store.Log.Last.Etag;
        for (var turn = 0; turn < 20; turn++)
        {
            Pass(LifetimeMs / 3);
            Lifetimes.KeepAlive(1, out var isRecorded);
            Assert.False(isRecorded);
        }
        Assert.Equal(last, _bench.Store.Log.Last.Etag);
    }

    /// <summary>The process was stopped, or the machine suspended. What callers sent meanwhile was not heard.</summary>
    [Fact]
    public void Leader_ThatStoodStill_ExtendsByThePause()
    {
        Put("k", Open(1));
        Pass(LifetimeMs - 600);
        _bench.Time.Advance(TimeSpan.FromSeconds(30));
        _bench.RunUntilIdle();
        Assert.Equal("v", _bench.Read("k"));
        Pass(400);
        Assert.Equal("v", _bench.Read("k"));
        Pass(500);
        Assert.Null(_bench.Read("k"));
    }

    /// <summary>
    /// What callers sent while the process stood still is heard before it finds that it did. Such a session once lived longer by the pause, which may be a
    /// night.
    /// </summary>
    [Fact]
    public void KeepAlive_BetweenAPauseAndTheNextLook_DoesNotCountThePause()
    {
        Put("k", Open(1));
        Pass(500);
        _bench.Time.Advance(TimeSpan.FromHours(8));
        Assert.Equal((ulong)LifetimeMs, Lifetimes.KeepAlive(1, out _));
        _bench.RunUntilIdle();
        Pass(LifetimeMs - 100);
        Assert.Equal("v", _bench.Read("k"));
        Pass(1_500);
        Assert.Null(_bench.Read("k"));
    }

    /// <summary>A leader that always looks late ends its sessions all the same.</summary>
    [Fact]
    public void Leader_ThatStandsStillAgainAndAgain_EndsSessions()
    {
        Put("k", Open(1));
        Pass(100);
        for (var pause = 0; pause < 8; pause++)
        {
            _bench.Time.Advance(TimeSpan.FromSeconds(2));
            _bench.RunUntilIdle();
        }
        Assert.Equal("v", _bench.Read("k"));
        _bench.Time.Advance(TimeSpan.FromSeconds(2));
        _bench.RunUntilIdle();
        _bench.Time.Advance(TimeSpan.FromSeconds(2));
        _bench.RunUntilIdle();
        Assert.Null(_bench.Read("k"));
    }

    /// <summary>A boot clock that may run fast by a hundredth.</summary>
    [Fact]
    public void Lifetime_IsLengthenedByTheDrift()
    {
        var time = new ManualTime();
        var lifetimes = new SessionLifetimes(1, time, driftPermille: 10, records: false);
        lifetimes.Look();
        lifetimes.Open(1, 100_000);
        Step(101_000);
        Assert.False(lifetimes.HasDue);
        Step(300);
        Assert.True(lifetimes.TryPeekDue(out _));

        void Step(int milliseconds)
        {
            for (var passed = 0; passed < milliseconds; passed += 100)
            {
                time.Advance(TimeSpan.FromMilliseconds(100));
                lifetimes.Look();
            }
        }
    }

    /// <summary>Two KeepAlives of a session whose rest is recorded: the second one, too, waits for the record that the first one has made.</summary>
    [Fact]
    public void KeepAlive_BeforeTheRecordThatForgetsItsRest_IsCommitted_NeedsARecordToo()
    {
        var time = new ManualTime();
        var lifetimes = new SessionLifetimes(1, time);
        lifetimes.Add(1, LifetimeMs, LifetimeMs / 4);
        lifetimes.Look();
        lifetimes.KeepAlive(1, out var isRecorded);
        Assert.True(isRecorded);
        Assert.True(lifetimes.TryForgetRest(1, new Etag(1, 5)));
        lifetimes.KeepAlive(1, out isRecorded);
        Assert.True(isRecorded);
        // That record says it already.
        Assert.False(lifetimes.TryForgetRest(1, new Etag(1, 6)));
        lifetimes.Committed(new Etag(1, 4));
        lifetimes.KeepAlive(1, out isRecorded);
        Assert.True(isRecorded);
        lifetimes.Committed(new Etag(1, 5));
        lifetimes.KeepAlive(1, out isRecorded);
        Assert.False(isRecorded);
    }

    /// <summary>What was recorded again after the record that forgets it holds.</summary>
    [Fact]
    public void RestRecordedAgain_BeforeItsForgettingIsCommitted_Holds()
    {
        var time = new ManualTime();
        var lifetimes = new SessionLifetimes(1, time);
        lifetimes.Add(1, LifetimeMs, LifetimeMs);
        lifetimes.Look();
        Assert.True(lifetimes.TryForgetRest(1, new Etag(1, 5)));
        // A caller that is silent has what is left of its session recorded, after a quarter of the lifetime.
        for (var passed = 0; passed <= LifetimeMs / 4; passed += 100)
        {
            time.Advance(TimeSpan.FromMilliseconds(100));
            lifetimes.Look();
        }
        Assert.True(lifetimes.TryTakeRest(out _, out _));
        lifetimes.Committed(new Etag(1, 5));
        lifetimes.KeepAlive(1, out var isRecorded);
        Assert.True(isRecorded);
    }

    /// <summary>KeepAlives beside the writer that records rests: whoever is not told of a record was heard before it, so that nothing was recorded.</summary>
    [Fact]
    public async Task KeepAlive_WhileTheRestIsRecorded_IsSeenByOneOfTheTwo()
    {
        for (var round = 0; round < 2_000; round++)
        {
            var time = new ManualTime();
            var lifetimes = new SessionLifetimes(1, time);
            lifetimes.Look();
            lifetimes.Open(1, LifetimeMs);
            // One look before the moment, so that this is no pause.
            time.Advance(TimeSpan.FromMilliseconds(900));
            lifetimes.Look();
            time.Advance(TimeSpan.FromMilliseconds(300));
            lifetimes.Look();
            var spin = round % 200;
            using var start = new Barrier(2);
            var kept = Task.Run(() =>
            {
                start.SignalAndWait();
                Thread.SpinWait(spin);
                lifetimes.KeepAlive(1, out var isRecorded);
                return isRecorded;
            });
            start.SignalAndWait();
            var recorded = lifetimes.TryTakeRest(out _, out _);
            Assert.True(await kept || !recorded, $"In round {round} a rest was recorded of a session whose caller is answered at once.");
        }
    }

    /// <summary>etcd revoked 1,000 leases because their KeepAlives waited behind a stalled disk (#15247).</summary>
    [Fact]
    public void KeepAlive_WhileTheDiskStalls_Counts()
    {
        const int Sessions = 200;
        using var bench = new ReplicaBench(new(1));
        bench.Lead(3);
        for (var session = 1u; session <= Sessions; session++)
            bench.Append(request => request.OpenSession(session, ReplicaBench.Owner, LifetimeMs));
        // Two writes that the disk does not finish, as many as there are lanes: nothing is committed.
        bench.Submit(request => request.Put("a"u8, "v"u8), thenAppend: true);
        bench.Submit(request => request.Put("b"u8, "v"u8), thenAppend: true);
        var lifetimes = bench.Store.Writes.Lifetimes!;
        for (var second = 0; second < 20; second++)
        {
            bench.Time.Advance(TimeSpan.FromMilliseconds(500));
            bench.Run();
            // Every second session is kept alive, and some only when they are due already.
            for (var session = 2u; second % 5 == 4 && session <= Sessions; session += 2)
                Assert.Equal((ulong)LifetimeMs, lifetimes.KeepAlive(session, out _));
        }
        bench.Commit(bench.Store.Log.Last.Etag);
        for (var round = 0; round < 10; round++)
        {
            bench.AppendBatch(ReplicaBench.WallTime);
            bench.Commit(bench.Store.Log.Last.Etag);
            bench.Run();
        }
        Assert.Equal(Sessions / 2, lifetimes.Count);
        Assert.Equal((ulong)LifetimeMs, lifetimes.KeepAlive(2, out _));
        Assert.Equal(0ul, lifetimes.KeepAlive(1, out _));
    }

    [Fact]
    public void FormerLeader_AppendsNoEnd_AndTheNextOneCountsAnew()
    {
        using var bench = new ReplicaBench(new(1));
        bench.Lead(3);
        bench.Append(request => request.OpenSession(1, ReplicaBench.Owner, LifetimeMs));
        bench.Store.Writes.StopLeading();
        Assert.Null(bench.Store.Writes.Lifetimes);
        bench.Time.Advance(TimeSpan.FromMinutes(1));
        bench.Run();
        bench.Lead(4);
        // Nobody could reach it before its first record was committed.
        bench.Time.Advance(TimeSpan.FromMinutes(1));
        bench.Run();
        Assert.False(bench.AppendBatch(ReplicaBench.WallTime));
        bench.Commit(bench.Store.Log.Last.Etag);
        Advance(LifetimeMs - 200);
        bench.AppendBatch(ReplicaBench.WallTime);
        Assert.Equal(1, bench.Store.Writes.Lifetimes!.Count);
        Advance(600);
        Assert.True(bench.AppendBatch(ReplicaBench.WallTime));
        Assert.Equal(0, bench.Store.Writes.Lifetimes!.Count);

        void Advance(int milliseconds)
        {
            for (var passed = 0; passed < milliseconds; passed += 100)
            {
                bench.Time.Advance(TimeSpan.FromMilliseconds(100));
                bench.Run();
            }
        }
    }

    [Fact]
    public void Sessions_WithALifetime_AreApartFromThoseThatAge()
    {
        using var bench = new ReplicaBench(new(1), StoreBench.SmallOptions with { SessionsMax = 2, SessionsWithLifetimeMax = 6 });
        bench.Lead(3);
        for (var session = 1u; session <= 3; session++)
            Assert.Equal(WriteOutcome.Applied, bench.Append(request => request.OpenSession(session, ReplicaBench.Owner, LifetimeMs)).Outcome);
        var refused = bench.Submit(request => request.OpenSession(4, ReplicaBench.Owner, LifetimeMs));
        Assert.False(bench.AppendBatch());
        Assert.Equal(WriteOutcome.SessionsFull, StoreBench.Answer(refused).Outcome);
        Assert.Equal(WriteOutcome.Applied, bench.Append(request => request.OpenSession(4, new QuotaOwner(8, 1), LifetimeMs)).Outcome);
        bench.OpenSession(11);
        bench.OpenSession(12);
        Assert.Equal(WriteOutcome.SessionsFull, bench.TryOpenSession(13, ReplicaBench.Owner));
        Assert.Equal([$"{11:X32}", $"{12:X32}"], bench.SessionIds());
    }

    [Fact]
    public void HundredThousandSessions_AreCountedDown()
    {
        const int Sessions = 100_000;
        var time = new ManualTime();
        var lifetimes = new SessionLifetimes(1, time, records: false);
        for (var session = 1u; session <= Sessions; session++)
            lifetimes.Add(session, LifetimeMs);
        Assert.Equal(TimeSpan.Zero, lifetimes.UntilNextLook);
        for (var round = 0; round < 10; round++)
        {
            for (var step = 0; step < 10; step++)
            {
                time.Advance(TimeSpan.FromMilliseconds(LifetimeMs / 20));
                while (lifetimes.UntilNextLook == TimeSpan.Zero)
                    lifetimes.Look();
                lifetimes.Look();
            }
            Assert.False(lifetimes.HasDue);
            for (var session = 1u; session <= Sessions; session++)
                Assert.Equal((ulong)LifetimeMs, lifetimes.KeepAlive(session, out _));
        }
        var ended = 0;
        for (var step = 0; step < 21; step++)
        {
            time.Advance(TimeSpan.FromMilliseconds(LifetimeMs / 20));
            lifetimes.Look();
            while (lifetimes.UntilNextLook == TimeSpan.Zero)
                lifetimes.Look();
            while (lifetimes.TryPeekDue(out _))
                ended += lifetimes.TryEndDue() ? 1 : 0;
        }
        Assert.Equal((Sessions, 0), (ended, lifetimes.Count));
    }

    private List<string> Rests() => LifeBench.Rests(_bench);

    private Etag Open(ulong session)
    {
        var result = _bench.Write(request => request.OpenSession(session, ReplicaBench.Owner, LifetimeMs));
        Assert.Equal(WriteOutcome.Applied, result.Outcome);
        return result.Etag;
    }

    private void Put(string key, Etag owner) =>
        Assert.Equal(WriteOutcome.Applied, _bench.Write(request => request.Put(StoreBench.Text(key), "v"u8, new KeyLife(0, owner))).Outcome);

    private void Pass(int milliseconds, params UInt128[] keep)
    {
        for (var passed = 0; passed < milliseconds; passed += 100)
        {
            _bench.Time.Advance(TimeSpan.FromMilliseconds(100));
            foreach (var session in keep)
                Assert.NotEqual(0ul, Lifetimes.KeepAlive(session, out _));
            _bench.RunUntilIdle();
        }
    }
}
