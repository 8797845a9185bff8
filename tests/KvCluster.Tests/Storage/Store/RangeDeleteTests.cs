using System.Globalization;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>Requests that delete ranges: in parts if they are large, with one result however often they arrive, and the same on every replica.</summary>
public sealed class RangeDeleteTests : IDisposable
{
    private const int Keys = 400;
    private static readonly KvCluster.Storage.Context.StoreOptions Options = StoreBench.SmallOptions with { RangeLeavesMax = 3, RangeLeavesUnreadMax = 3 };

    private readonly ReplicaBench _leader = new(new(1), Options);
    private readonly ReplicaBench _follower = new(new(2), Options);

    public RangeDeleteTests()
    {
        _leader.Lead(1);
        _leader.Append(request =>
        {
            for (var key = 0; key < Keys; key++)
                request.Put(Key(key), new byte[500]);
        });
    }

    public void Dispose()
    {
        _leader.Dispose();
        _follower.Dispose();
    }

    [Fact]
    public void LargeRange_Repeated_DeletesPartsUntilNothingIsLeft()
    {
        var (deleted, parts) = (0, 0);
        for (var isPartial = true; isPartial; parts++)
        {
            var result = _leader.Append(DeleteRange(50, 350));
            Assert.Equal(WriteOutcome.Applied, result.Outcome);
            Assert.True(result.Deleted > 0, "A part deletes nothing.");
            (deleted, isPartial) = (deleted + result.Deleted, result.IsPartial);
            // From the first key on, and nothing else.
            Assert.Null(_leader.Read(Text(50 + deleted - 1)));
            Assert.Equal(isPartial, _leader.Read(Text(349)) is not null);
            Assert.NotNull(_leader.Read(Text(350)));
        }
        Assert.Equal(300, deleted);
        Assert.InRange(parts, 5, 60);
        Assert.Equal((ulong)Keys - 300, _leader.Store.Statistics.Keys);
        var none = _leader.Append(DeleteRange(50, 350));
        Assert.Equal((WriteOutcome.Applied, 0, false), (none.Outcome, none.Deleted, none.IsPartial));
    }

    /// <summary>
    /// Leaves that a checkpoint has written are not read, except those on the edges, so that one request deletes many more of them than of changed ones. They
    /// have a bound of their own.
    /// </summary>
    [Theory]
    [InlineData(1_000, 1, 1)]
    [InlineData(5, 3, 8)]
    public void LargeRange_InTheFile_IsDeletedInPartsOfItsOwnBound(int unreadMax, int partsMin, int partsMax)
    {
        using var leader = new ReplicaBench(new(3), Options with { RangeLeavesUnreadMax = unreadMax });
        leader.Lead(1);
        leader.Append(request =>
        {
            for (var key = 0; key < Keys; key++)
                request.Put(Key(key), new byte[500]);
        });
        var checkpoint = leader.Store.Checkpoints.RequestAsync();
        leader.Run();
        Assert.True(checkpoint.IsCompletedSuccessfully);
        var (deleted, parts) = (0, 0);
        for (var isPartial = true; isPartial; parts++)
        {
            var result = leader.Append(DeleteRange(50, 350));
            Assert.True(result.Deleted > 0, "A part deletes nothing.");
            (deleted, isPartial) = (deleted + result.Deleted, result.IsPartial);
            Assert.Null(leader.Read(Text(50 + deleted - 1)));
            Assert.Equal(isPartial, leader.Read(Text(349)) is not null);
        }
        Assert.Equal(300, deleted);
        Assert.InRange(parts, partsMin, partsMax);
        Assert.Equal((ulong)Keys - 300, leader.Store.Statistics.Keys);
    }

    // A follower's leaves are others: it applies several records as one state, and its pages come from a checkpoint.
    [Fact]
    public void Follower_WithOtherLeaves_DeletesTheSameKeys()
    {
        _follower.Follow(_leader);
        _follower.Commit(_leader.Store.Log.Last.Etag);
        for (var key = 0; key < Keys; key += 3)
            _leader.Append(request => request.Put([.. Key(key), 1], new byte[40]));
        _leader.Append(DeleteRange(100, 300));
        _leader.Append(request =>
        {
            request.DeleteRange(Key(390), default);
            request.Put(Key(395), "1"u8);
        });
        _follower.Follow(_leader);
        _follower.Commit(_leader.Store.Log.Last.Etag);
        _follower.Run();
        Assert.Equal(_leader.Digest(), _follower.Digest());
        _follower.Reopen();
        _follower.Commit(_leader.Store.Log.Last.Etag);
        _follower.Run();
        Assert.Equal(_leader.Digest(), _follower.Digest());
    }

    [Fact]
    public void LargeRange_WithOtherOperations_IsRefusedAndAppliedWhenItIsSmaller()
    {
        var session = _leader.OpenSession(77);
        Action<WriteRequest> request = filled =>
        {
            filled.Identify(session, 1, 1);
            filled.DeleteRange(Key(0), Key(300));
            filled.Put(Key(0), "new"u8);
        };
        var refused = _leader.Submit(request);
        Assert.False(_leader.AppendBatch());
        Assert.Equal(WriteOutcome.RangeTooLarge, StoreBench.Answer(refused).Outcome);
        while (_leader.Append(DeleteRange(10, 300)).IsPartial)
        {
        }
        var applied = _leader.Append(request);
        Assert.Equal((WriteOutcome.Applied, 10), (applied.Outcome, applied.Deleted));
        Assert.Equal("new", _leader.Read(Text(0)));
    }

    [Fact]
    public void Refused_ChangesNothing()
    {
        var before = _leader.Digest();
        var last = _leader.Store.Log.Last;
        var refused = _leader.Submit(request =>
        {
            request.Put(Key(1), "changed"u8);
            request.DeleteRange(Key(0), Key(9));
            request.DeleteRange(Key(100), Key(300));
        });
        Assert.False(_leader.AppendBatch());
        Assert.Equal(WriteOutcome.RangeTooLarge, StoreBench.Answer(refused).Outcome);
        Assert.Equal(before, _leader.Digest());
        Assert.Equal(last, _leader.Store.Log.Last);
    }

    // One of the first ranges takes just as many leaves as a request may.
    [Fact]
    public void RangeToTheEnd_AfterOneThatTakesAllLeaves_IsRefused()
    {
        var before = _leader.Digest();
        for (var end = 1; end < 80; end++)
        {
            var refused = _leader.Submit(request =>
            {
                request.DeleteRange(Key(0), Key(end));
                request.DeleteRange(default, default);
            });
            Assert.False(_leader.AppendBatch());
            Assert.Equal(WriteOutcome.RangeTooLarge, StoreBench.Answer(refused).Outcome);
            Assert.Equal(before, _leader.Digest());
        }
    }

    [Fact]
    public void Identified_Repeated_GetsTheFirstAnswer()
    {
        var session = _leader.OpenSession(77);
        foreach (var (sequence, from, to) in (ReadOnlySpan<(ulong, int, int)>)[(1, 0, 300), (2, 398, 500), (3, 398, 500)])
        {
            Action<WriteRequest> request = filled =>
            {
                filled.Identify(session, sequence, 1);
                filled.DeleteRange(Key(from), Key(to));
            };
            var first = _leader.Append(request);
            Assert.Equal(sequence == 1, first.IsPartial);
            Assert.Equal(sequence == 3, first.Deleted == 0);
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

    [Fact]
    public void Condition_ThatFails_DeletesNothing()
    {
        var answer = _leader.Submit(request =>
        {
            request.AddCondition(Key(Keys), ConditionKind.Exists);
            request.DeleteRange(default, default);
        });
        Assert.False(_leader.AppendBatch());
        Assert.Equal(WriteOutcome.ConditionFailed, StoreBench.Answer(answer).Outcome);
        Assert.Equal((ulong)Keys, _leader.Store.Statistics.Keys);
    }

    [Fact]
    public void Range_ThatEndsBeforeItBegins_IsRefused()
    {
        var request = WriteRequest.Rent();
        Assert.Throws<ArgumentOutOfRangeException>(() => request.DeleteRange("b"u8, "a"u8));
        request.Return();
    }

    private static Action<WriteRequest> DeleteRange(int from, int to) => request => request.DeleteRange(Key(from), Key(to));

    private static string Text(int key) => string.Create(CultureInfo.InvariantCulture, $"key {key:d5}");

    private static byte[] Key(int key) => StoreBench.Text(Text(key));
}
