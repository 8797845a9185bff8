using KvCluster.Disk;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>
/// A write of the journal or the control file into allocated blocks found no space, as on a copy-on-write file system or an overcommitted volume. That ended
/// the replica, although a full disk elsewhere only refuses puts. Now it is handled in the same way. Nothing of such a write counts, although some of its
/// sectors may be on the disk, and all of it is written again when there is space.
/// </summary>
public sealed class NoRoomInPlaceTests : IDisposable
{
    private static readonly TimeSpan UntilLookedAgain = TimeSpan.FromSeconds(2);
    private readonly ReplicaBench _replica = new(new(1));

    public void Dispose() => _replica.Dispose();

    [Fact]
    public void Put_JournalWriteFindsNoRoom_IsAnsweredWhenThereIsRoom()
    {
        _replica.Lead(1);
        var before = Commit(_replica.Put("before", "1"));
        var durable = _replica.Store.Durable.Last;
        RefuseWrites(".journal");
        var waits = _replica.Put("waits", "2");
        LookAgain();

        Assert.Equal((durable, null, true), (_replica.Store.Durable.Last, _replica.FailureTold, _replica.Store.Space.IsDiskFull));
        Assert.False(waits.IsCompleted);
        Assert.Equal(WriteOutcome.DiskFull, Refused(request => request.Put("put"u8, "3"u8)));
        Assert.Equal(WriteOutcome.NoRoomYet, Refused(request => request.Delete("before"u8)));
        Assert.Equal("1", _replica.Read("before"));

        _replica.Disk.Fault = null;
        LookAgain();
        LookAgain();
        Assert.Equal((_replica.Store.Log.Last, false), (_replica.Store.Durable.Last, _replica.Store.Space.IsDiskFull));
        Assert.Equal(WriteOutcome.Applied, Commit(waits).Outcome);
        Assert.Equal(WriteOutcome.Applied, Commit(_replica.Put("after", "4")).Outcome);
        Assert.Equal(WriteOutcome.Applied, before.Outcome);
        var (last, digest) = (_replica.Store.Log.Last, _replica.Digest());
        _replica.Reopen();
        _replica.Commit(last.Etag);
        Assert.Equal((last, Convert.ToHexString(digest)), (_replica.Store.Log.Last, Convert.ToHexString(_replica.Digest())));
    }

    [Fact]
    public void Put_JournalWriteFindsNoRoom_UsesTheReserve()
    {
        _replica.Run();
        _replica.Lead(1);
        var isKept = true;
        _replica.Disk.Fault = call =>
        {
            isKept &= call.Operation != "Delete";
            return isKept && IsWriteTo(call, ".journal") ? DiskFault.NoRoom : DiskFault.None;
        };
        var answer = _replica.Put("key", "1");
        Assert.Equal((false, _replica.Store.Log.Last, null), (isKept, _replica.Store.Durable.Last, _replica.FailureTold));
        Assert.Equal(WriteOutcome.Applied, Commit(answer).Outcome);
    }

    [Fact]
    public void Append_FollowersJournalFindsNoRoom_IsNotAcknowledgedUntilThereIsRoom()
    {
        using var follower = new ReplicaBench(new(2));
        _replica.Lead(1);
        for (var index = 0; index < 20; index++)
            _ = _replica.Put($"key-{index}", new string('x', 2000));
        var writes = 0;
        follower.Disk.Fault = call => IsWriteTo(call, ".journal") && ++writes > 1 ? DiskFault.NoRoom : DiskFault.None;
        follower.Follow(_replica);
        Assert.Null(follower.FailureTold);
        Assert.True(follower.Store.Durable.Last.Etag < follower.Store.Log.Last.Etag);
        // It has everything that it acknowledges, even after a power loss.
        using (var dead = follower.Disk.Copy())
        {
            using var reopened = new ReplicaBench(new(2), disk: dead);
            Assert.True(reopened.Store.Log.Last.Etag >= follower.Store.Durable.Last.Etag);
        }
        follower.Disk.Fault = null;
        LookAgain(follower);
        Assert.Equal(_replica.Store.Log.Last, follower.Store.Durable.Last);
        follower.Reopen();
        Assert.Equal(_replica.Store.Log.Last, follower.Store.Log.Last);
    }

    [Fact]
    public void Truncate_RecordsFoundNoRoom_DropsThemAndContinues()
    {
        using var follower = new ReplicaBench(new(2));
        _replica.Lead(1);
        follower.Follow(_replica);
        var kept = follower.Store.Durable.Last;
        _ = _replica.Put("cut", "1");
        follower.Disk.Fault = call => IsWriteTo(call, ".journal") ? DiskFault.NoRoom : DiskFault.None;
        follower.Follow(_replica);
        follower.Store.Committed.Truncate(kept.Etag);
        follower.Run();
        Assert.Equal((kept, null), (follower.Store.Durable.Last, follower.FailureTold));
        Assert.Empty(follower.CutsTold);

        _replica.Store.Writes.StopLeading();
        _replica.Store.Committed.Truncate(kept.Etag);
        _replica.Run();
        _replica.Lead(2);
        follower.Disk.Fault = null;
        follower.Follow(_replica);
        LookAgain(follower);
        Assert.Equal([kept], follower.CutsTold);
        Assert.Equal(_replica.Store.Log.Last, follower.Store.Durable.Last);
        follower.Reopen();
        Assert.Equal(_replica.Store.Log.Last, follower.Store.Log.Last);
    }

    [Fact]
    public void WriteControl_NoRoom_CompletesWhenThereIsRoomAndRecordsOvertakeIt()
    {
        _replica.Lead(1);
        RefuseWrites("/control");
        _replica.Store.Log.WriteControl(_replica.Store.Durable.Control with { PromisedEpoch = 7 });
        _replica.Store.Log.WriteControl(_replica.Store.Durable.Control with { PromisedEpoch = 8 });
        _ = _replica.Put("key", "1");
        LookAgain();
        Assert.Equal((0ul, null, true), (_replica.Store.Durable.Control.PromisedEpoch, _replica.FailureTold, _replica.Store.Space.IsDiskFull));
        Assert.Empty(_replica.ControlTold);
        Assert.Equal(_replica.Store.Log.Last, _replica.Store.Durable.Last);

        _replica.Disk.Fault = null;
        LookAgain();
        LookAgain();
        Assert.Equal([7ul, 8ul], _replica.ControlTold.Select(told => told.PromisedEpoch));
        Assert.False(_replica.Store.Space.IsDiskFull);
        _replica.Reopen();
        Assert.Equal(8ul, _replica.Store.Durable.Control.PromisedEpoch);
    }

    // The header of a new segment and the zeros over a retired one are written in place, too. On a copy-on-write file system every other change needs
    // space as well, even removing a name.
    [Theory]
    [InlineData("NoRoom", false, 150)]
    [InlineData("NoRoomAfterwards", true, 60)]
    [Trait("Turn", "7")]
    public void Put_AnyCallFindsNoRoomInAnotherWay_DoesNotEndTheReplica(string name, bool writesOnly, int count) =>
        Put_AnyCallFindsNoRoom_DoesNotEndTheReplica(name, writesOnly, count);

    [Theory]
    [InlineData("NoRoom", true, 60)]
    [InlineData("NoRoomAfterwards", false, 150)]
    public void Put_AnyCallFindsNoRoom_DoesNotEndTheReplica(string name, bool writesOnly, int count)
    {
        var fault = Enum.Parse<DiskFault>(name);
        for (var full = 0; full < count; full++)
        {
            using var replica = new ReplicaBench(new(1), StoreBench.SmallOptions with { CheckpointQuiescentJournalBytes = long.MaxValue });
            replica.Lead(1);
            var writes = 0;
            replica.Disk.Fault = call => (call.Operation == "Write" || (!writesOnly && call.Changes)) && writes++ == full ? fault : DiskFault.None;
            var answers = new List<Task<WriteResult>>();
            for (var index = 0; index < 12; index++)
            {
                answers.Add(replica.Submit(request => request.Put(StoreBench.Text($"key-{index}"), new byte[4000])));
                _ = replica.AppendBatch();
                replica.Commit(Etag.Min(replica.Store.Log.Last.Etag, replica.Store.Durable.Last.Etag));
                if (index % 4 == 3)
                    _ = replica.Store.Checkpoints.RequestAsync();
                replica.Run();
                LookAgain(replica);
            }
            LookAgain(replica);
            replica.Commit(replica.Store.Log.Last.Etag);
            replica.Run();
            Assert.True(replica.FailureTold is null && !replica.Store.Space.IsDiskFull, $"Write {full}: {replica.FailureTold}");
            Assert.Equal(replica.Store.Log.Last, replica.Store.Durable.Last);
            var applied = answers.Count(answer => StoreBench.Answer(answer).Outcome == WriteOutcome.Applied);
            Assert.Equal((ulong)applied, replica.Store.Statistics.Keys);
            replica.Disk.Fault = null;
            var last = replica.Store.Log.Last;
            replica.Reopen();
            Assert.Equal(last, replica.Store.Log.Last);
        }
    }

    // Two lanes, reordered writes, a disk that is full at times, and a power loss: everything answered is there, and every write has its predecessors.
    [Fact]
    public void Put_NoRoomAtTimesAndPowerLost_KeepsEverythingAnswered()
    {
        for (var seed = 1; seed <= 60; seed++)
        {
            using var bench = new StoreBench(seed: seed);
            bench.Open();
            var random = new Random(seed);
            bench.Disk.Fault = call => IsWriteTo(call, ".journal") && random.Next(3) == 0 ? DiskFault.NoRoom : DiskFault.None;
            var answers = new List<(string Key, Task<WriteResult> Answer)>();
            for (var index = 0; index < 40; index++)
            {
                var key = $"key-{index:d2}";
                answers.Add((key, bench.Submit(request => request.Put(StoreBench.Text(key), new byte[random.Next(3000)]))));
                for (var steps = random.Next(6); steps > 0; steps--)
                    bench.Step();
                if (random.Next(5) == 0)
                    bench.Time.Advance(UntilLookedAgain);
            }
            var heals = seed % 2 == 0;
            if (heals)
                bench.Disk.Fault = null;
            for (var look = 0; look < 3; look++)
            {
                bench.Time.Advance(UntilLookedAgain);
                bench.RunUntilIdle();
            }
            Assert.Null(bench.Store.Life.Failure);
            if (heals)
                Assert.All(answers, put => Assert.True(put.Answer.IsCompleted, $"Seed {seed}: {put.Key} got no answer."));
            var applied = answers.Where(put => put.Answer.IsCompleted && StoreBench.Answer(put.Answer).Outcome == WriteOutcome.Applied)
                .Select(put => put.Key).ToList();
            var refused = answers.Where(put => put.Answer.IsCompleted && StoreBench.Answer(put.Answer).Outcome == WriteOutcome.DiskFull)
                .Select(put => put.Key).ToList();
            bench.Close();
            bench.Disk.Fault = null;
            bench.Disk.Restart(UnsyncedWrites.Torn, seed);
            bench.Open();
            var held = bench.ReadAllKeys().Keys;
            Assert.True(applied.All(held.Contains), $"Seed {seed}: {string.Join(", ", applied.Except(held))} were answered but are lost.");
            Assert.True(!refused.Any(held.Contains), $"Seed {seed}: {string.Join(", ", refused.Intersect(held))} were refused but are in the store.");
        }
    }

    private static bool IsWriteTo(DiskCall call, string end) => call.Operation == "Write" && call.Path.EndsWith(end, StringComparison.Ordinal);

    private static void LookAgain(ReplicaBench replica)
    {
        replica.Time.Advance(UntilLookedAgain);
        replica.Run();
    }

    private void LookAgain() => LookAgain(_replica);

    private void RefuseWrites(string end) => _replica.Disk.Fault = call => IsWriteTo(call, end) ? DiskFault.NoRoom : DiskFault.None;

    private WriteResult Commit(Task<WriteResult> answer)
    {
        _replica.Commit(_replica.Store.Log.Last.Etag);
        _replica.Run();
        return StoreBench.Answer(answer);
    }

    private WriteOutcome Refused(Action<WriteRequest> fill)
    {
        var answer = _replica.Submit(fill);
        _replica.AppendBatch();
        return StoreBench.Answer(answer).Outcome;
    }
}
