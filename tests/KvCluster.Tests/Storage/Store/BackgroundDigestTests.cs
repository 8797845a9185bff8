using KvCluster.Disk;
using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Maintenance;
using KvCluster.Storage.Pages;
using KvCluster.Tests.Storage.Pages;

namespace KvCluster.Tests.Storage.Store;

/// <summary>
/// A digest of exactly one state, taken while the store keeps working: paced, abandoned when it would cost too much, and ended with the store.
/// </summary>
public sealed class BackgroundDigestTests
{
    private static readonly TimeSpan _second = TimeSpan.FromSeconds(1);
    private readonly List<byte[]?> _told = [];

    [Fact]
    public void TakeDigest_WhileTheStoreChanges_IsOfTheStateAtItsStart()
    {
        using var bench = Filled(400);
        var expected = bench.Digest();
        bench.Store.Digests.Take(bench.Store.Pages.Roots.PublishedEtag, _told.Add);
        Put(bench, "key-3", "another");
        Assert.Empty(_told);
        Pass(bench);
        Assert.Equal(expected, Assert.Single(_told));
        Assert.NotEqual(expected, bench.Digest());
    }

    /// <summary>By shard time sessions end, so replicas that differ in it will differ in their sessions.</summary>
    [Fact]
    public void Digest_OfStatesThatDifferInShardTime_Differs()
    {
        Assert.Equal(DigestAt(7), DigestAt(7));
        Assert.NotEqual(DigestAt(7), DigestAt(8));
    }

    [Fact]
    public void TakeDigest_WhereCommittedRecordsWaitToBeApplied_IsOfExactlyThatRecordsState()
    {
        using var leader = new ReplicaBench(new(1));
        using var follower = new ReplicaBench(new(2));
        leader.Lead(3);
        for (var index = 0; index < 20; index++)
            Put(leader, $"key-{index}", new string('x', 200 << 10));
        var (etag, expected) = (leader.Store.Log.Last.Etag, leader.Digest());
        for (var index = 0; index < 20; index++)
            Put(leader, $"key-{index}", "later");
        follower.Follow(leader);
        follower.Commit(etag);
        Assert.True(follower.Store.Committed.IsApplying);
        follower.Store.Digests.Take(etag, _told.Add);
        follower.Commit(leader.Store.Log.Last.Etag);
        while (follower.Store.Follower.ApplyMore())
        {
        }

        Assert.Equal(leader.Store.Log.Last.Etag, follower.Store.Pages.Roots.PublishedEtag);
        Pass(follower);
        Assert.Equal(expected, Assert.Single(_told));
    }

    [Fact]
    public void TakeDigest_WhenMuchIsWrittenMeanwhile_GivesUp()
    {
        // A checkpoint has one step, so that no put waits for its pauses.
        using var bench = Filled(400, StoreBench.SmallOptions with { CheckpointScratchBytes = 1 << 20,
            Pages = new PageStoreOptions { DigestPinnedBytesMax = 1 << 20, WriteBytes = 16 << 20 } });
        bench.Store.Digests.Take(bench.Store.Pages.Roots.PublishedEtag, _told.Add);
        for (var index = 0; index < 400; index++)
            Put(bench, $"key-{index}", new string('y', 8000));
        Pass(bench);
        Assert.Null(Assert.Single(_told));
        // Its memory is released, and another digest succeeds.
        Put(bench, "key-1", "1");
        Pass(bench);
        bench.Store.Digests.Take(bench.Store.Pages.Roots.PublishedEtag, _told.Add);
        Pass(bench);
        Assert.Equal(bench.Digest(), _told[1]);
    }

    [Fact]
    public void TakeDigest_Again_ReplacesTheFirst()
    {
        using var bench = Filled(20);
        bench.Store.Digests.Take(bench.Store.Pages.Roots.PublishedEtag, _ => Assert.Fail("The replaced digest was reported."));
        bench.Store.Digests.Take(bench.Store.Pages.Roots.PublishedEtag, _told.Add);
        Pass(bench);
        Assert.Equal(bench.Digest(), Assert.Single(_told));
    }

    [Fact]
    public void Close_DuringADigest_DoesNotWaitForIt()
    {
        using var bench = Filled(400);
        bench.Store.Digests.Take(bench.Store.Pages.Roots.PublishedEtag, _ => Assert.Fail("A closed store reported a digest."));
        var closing = bench.Store.CloseAsync();
        bench.Run();
        Assert.True(closing.IsCompletedSuccessfully);
        Pass(bench);
    }

    [Fact]
    public void TakeDigest_UnexpectedException_EndsTheStoreAndNotTheProcess()
    {
        // Without a pace the pause cannot be computed.
        using var bench = Filled(400, StoreBench.SmallOptions with { DigestBytesPerSecond = 0 });
        bench.Store.Digests.Take(bench.Store.Pages.Roots.PublishedEtag, _ => Assert.Fail("A failed digest was reported."));
        Pass(bench);
        Assert.IsType<DivideByZeroException>(bench.FailureTold);
    }

    [Fact]
    public void RestAfter_SeveralShards_ShareTheNodesPace()
    {
        var time = new ManualTime();
        var pace = new DigestPace(1 << 20);
        var began = time.GetTimestamp();
        Assert.Equal(_second, pace.RestAfter(time, began, 1 << 20));
        // The next shard waits until the first one's pause is over.
        Assert.Equal(2 * _second, pace.RestAfter(time, began, 1 << 20));
        time.Advance(10 * _second);
        began = time.GetTimestamp();
        // If the work takes longer than its bytes allow, the pause is three times as long as the work.
        time.Advance(4 * _second);
        Assert.Equal(12 * _second, pace.RestAfter(time, began, 1 << 20));
    }

    private static byte[] DigestAt(long shardTime)
    {
        using var disk = new SimulatedDisk();
        using var pages = PageStore.Create(disk, "data", new PageStoreOptions { MapBytes = 1 << 26 }, new byte[16]);
        pages.Apply(batch =>
        {
            batch.Put(TreeId.Kv, "key"u8, "value"u8);
            batch.ShardTime = shardTime;
        });
        using var snapshot = pages.Roots.OpenSnapshot();
        return TreeDigest.Of(snapshot);
    }

    private static ReplicaBench Filled(int keys, StoreOptions? options = null)
    {
        var bench = new ReplicaBench(new(1), options);
        bench.Lead(1);
        for (var index = 0; index < keys; index++)
            Put(bench, $"key-{index}", new string('x', 8000));
        return bench;
    }

    private static void Put(ReplicaBench bench, string key, string value) =>
        bench.Append(request => request.Put(StoreBench.Text(key), StoreBench.Text(value)));

    private static void Pass(ReplicaBench bench)
    {
        for (var step = 0; step < 100; step++)
        {
            bench.Run();
            bench.Time.Advance(_second);
        }
    }
}
