using System.Globalization;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>Requests that delete whole sets: in parts if they are large, with one result however often they arrive, and the same on every replica.</summary>
public sealed class SetDeleteTests : IDisposable
{
    private const int Members = 600;
    private static readonly KvCluster.Storage.Context.StoreOptions Options = StoreBench.SmallOptions with { RangeLeavesMax = 3, RangeLeavesUnreadMax = 3 };

    private readonly ReplicaBench _leader = new(new(1), Options);
    private readonly ReplicaBench _follower = new(new(2), Options);

    public SetDeleteTests()
    {
        _leader.Lead(1);
        _leader.Append(request =>
        {
            for (var member = 0; member < Members; member++)
                request.SetAdd("large"u8, Member(member));
            request.SetAdd("small"u8, "a"u8);
            request.SetAdd("small"u8, "b"u8);
            request.Put("large"u8, "a value of the same key"u8);
        });
    }

    public void Dispose()
    {
        _leader.Dispose();
        _follower.Dispose();
    }

    [Fact]
    public void SmallSet_IsDeletedAtOnce_AlsoWithOtherOperations()
    {
        var result = _leader.Append(request =>
        {
            request.SetDelete("small"u8);
            request.SetDelete("none"u8);
            request.SetAdd("small"u8, "c"u8);
            request.Put("key"u8, "value"u8);
        });
        Assert.Equal((WriteOutcome.Applied, 2, false), (result.Outcome, result.Deleted, result.IsPartial));
        Assert.Equal((1ul, "value"), (CountOf("small"), _leader.Read("key")));
        var none = _leader.Append(request => request.SetDelete("none"u8));
        Assert.Equal((WriteOutcome.Applied, 0, false), (none.Outcome, none.Deleted, none.IsPartial));
    }

    [Fact]
    public void LargeSet_Repeated_DeletesPartsUntilNothingIsLeft()
    {
        var (deleted, parts) = (0, 0);
        for (var isPartial = true; isPartial; parts++)
        {
            var result = _leader.Append(request => request.SetDelete("large"u8));
            Assert.Equal(WriteOutcome.Applied, result.Outcome);
            Assert.True(result.Deleted > 0, "A part deletes nothing.");
            (deleted, isPartial) = (deleted + result.Deleted, result.IsPartial);
            Assert.Equal((ulong)(Members - deleted), CountOf("large"));
            using var snapshot = _leader.Store.OpenSnapshot();
            if (!snapshot.TryGetSet("large"u8, out var set))
                continue;
            // From the first member on, and nothing else.
            Assert.Equal((false, true, result.Etag), (set.Contains(Member(deleted - 1)), set.Contains(Member(deleted)), set.Etag));
        }
        Assert.Equal(Members, deleted);
        Assert.InRange(parts, 5, 60);
        Assert.Equal((2ul, "a value of the same key"), (CountOf("small"), _leader.Read("large")));
    }

    // A follower's leaves are others: it applies several records as one state, and its pages come from a checkpoint.
    [Fact]
    public void Follower_WithOtherLeaves_DeletesTheSameMembers()
    {
        _follower.Follow(_leader);
        _follower.Commit(_leader.Store.Log.Last.Etag);
        for (var member = 0; member < Members; member += 3)
            _leader.Append(request => request.SetAdd("large"u8, [.. Member(member), 1]));
        Assert.True(_leader.Append(request => request.SetDelete("large"u8)).IsPartial);
        _leader.Append(request => request.SetRemove("large"u8, Member(Members - 1)));
        Assert.True(_leader.Append(request => request.SetDelete("large"u8)).IsPartial);
        CheckFollower();
        _follower.Reopen();
        CheckFollower();
        while (_leader.Append(request => request.SetDelete("large"u8)).IsPartial)
        {
        }
        CheckFollower();
        Assert.Equal(0ul, CountOf("large"));
    }

    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public void LargeSet_WithOtherOperationsOrAsAWhole_IsRefusedAndAppliedWhenItIsSmaller(bool isAlone)
    {
        var before = _leader.Digest();
        Action<WriteRequest> request = filled =>
        {
            filled.IsWhole = true;
            if (!isAlone)
                filled.Put("key"u8, "value"u8);
            filled.SetDelete("large"u8);
        };
        var refused = _leader.Submit(request);
        Assert.False(_leader.AppendBatch());
        Assert.Equal(WriteOutcome.RangeTooLarge, StoreBench.Answer(refused).Outcome);
        Assert.Equal(before, _leader.Digest());
        var left = Members;
        while (left > 80)
            left -= _leader.Append(part => part.SetDelete("large"u8)).Deleted;
        var applied = _leader.Append(request);
        Assert.Equal((WriteOutcome.Applied, left, false), (applied.Outcome, applied.Deleted, applied.IsPartial));
        Assert.Equal(0ul, CountOf("large"));
    }

    // Each has two leaves or three.
    [Fact]
    public void LargeSet_AfterOneThatTakesAllLeaves_IsRefused_AndSmallSetsAreNot()
    {
        _leader.Append(request =>
        {
            for (var member = 0; member < 60; member++)
            {
                request.SetAdd("one"u8, Member(member));
                request.SetAdd("two"u8, Member(member));
            }
        });
        var before = _leader.Digest();
        var refused = _leader.Submit(request =>
        {
            request.SetDelete("one"u8);
            request.SetDelete("two"u8);
        });
        Assert.False(_leader.AppendBatch());
        Assert.Equal(WriteOutcome.RangeTooLarge, StoreBench.Answer(refused).Outcome);
        Assert.Equal(before, _leader.Digest());
        var applied = _leader.Append(request =>
        {
            request.SetDelete("one"u8);
            request.SetDelete("small"u8);
        });
        Assert.Equal((WriteOutcome.Applied, 62), (applied.Outcome, applied.Deleted));
    }

    [Fact]
    public void Identified_Repeated_GetsTheFirstAnswer()
    {
        var session = _leader.OpenSession(77);
        foreach (var (sequence, set, isPartial) in (ReadOnlySpan<(ulong, string, bool)>)[(1, "large", true), (2, "small", false), (3, "none", false)])
        {
            Action<WriteRequest> request = filled =>
            {
                filled.Identify(session, sequence, 1);
                filled.SetDelete(StoreBench.Text(set));
            };
            var first = _leader.Append(request);
            Assert.Equal((isPartial, sequence == 3), (first.IsPartial, first.Deleted == 0));
            var last = _leader.Store.Log.Last;
            _leader.Reopen();
            _leader.Lead(last.Epoch + 1);
            _leader.Commit(_leader.Store.Log.Last.Etag);
            last = _leader.Store.Log.Last;
            var again = _leader.Submit(request);
            Assert.False(_leader.AppendBatch());
            Assert.Equal((first, last), (StoreBench.Answer(again), _leader.Store.Log.Last));
        }
    }

    private void CheckFollower()
    {
        _follower.Follow(_leader);
        _follower.Commit(_leader.Store.Log.Last.Etag);
        _follower.Run();
        Assert.Equal(_leader.Digest(), _follower.Digest());
    }

    private ulong CountOf(string set)
    {
        using var snapshot = _leader.Store.OpenSnapshot();
        return snapshot.TryGetSet(StoreBench.Text(set), out var stored) ? stored.Count : 0;
    }

    /// <summary>Three hundred bytes, so that a leaf has about twenty.</summary>
    private static byte[] Member(int number) => StoreBench.Text(string.Create(CultureInfo.InvariantCulture, $"member {number:d5} {new string('m', 290)}"));
}
