using KvCluster.Storage;
using KvCluster.Storage.Sessions;
using KvCluster.Tests.Storage.Store;

namespace KvCluster.Tests.Storage.Sessions;

/// <summary>Pins what FORMAT.md says of sessions and results, in records and in the tree.</summary>
public sealed class SessionFormatTests
{
    [Fact]
    public void Record_WithResults_Bytes_ArePinned()
    {
        using var bench = new ReplicaBench(1);
        bench.Lead(3);
        var opened = bench.Append(request => request.OpenSession());
        Assert.Equal("05", Payload(bench));
        Assert.Equal(new UInt128(3, 2), opened.Etag);
        bench.Submit(request =>
        {
            request.Identify(opened.Etag, 7, 7);
            request.Put(StoreBench.Text("k"), StoreBench.Text("v"));
        });
        bench.Submit(request =>
        {
            request.Identify(opened.Etag, 6, 6);
            request.Delete(StoreBench.Text("k"));
        });
        bench.Submit(request =>
        {
            request.Identify(opened.Etag, 10, 7);
            request.Delete(StoreBench.Text("k"));
        });
        bench.Append(request =>
        {
            request.Identify(opened.Etag, 9, 7);
            request.AddCondition(StoreBench.Text("k"), ConditionKind.Exists);
            request.Delete(StoreBench.Text("k"));
        });
        // 7 applied as change 3; 6 is closed; 10 deleted as change 4; 9 failed at change 4.
        Assert.Equal("01016B000176" + "02016B" + "060A" + "0302" + "07" + "0005" + "0406" + "030300", Payload(bench));
    }

    [Fact]
    public void Record_WithNothingButAFailedCondition_IsResultOnlyAndHasItsOwnChange()
    {
        using var bench = new ReplicaBench(1);
        bench.Lead(3);
        var session = bench.Append(request => request.OpenSession()).Etag;
        var before = bench.Store.Last;
        bench.Append(request =>
        {
            request.Identify(session, 1, 1);
            request.AddCondition(StoreBench.Text("k"), ConditionKind.Exists);
            request.Put(StoreBench.Text("k"), StoreBench.Text("v"));
        });
        Assert.Equal("0606" + "0302" + "01" + "000300", Payload(bench));
        Assert.Equal((before.Change + 1, RecordFlags.ResultOnly), (bench.Store.Last.Change, bench.Store.Last.Flags));
    }

    [Fact]
    public void State_Bytes_ArePinned()
    {
        var bytes = new byte[SessionState.Bytes];
        new SessionState(1, 2, 3).WriteTo(bytes);
        Assert.Equal("0100000000000000" + "0200000000000000" + "0300000000000000", Convert.ToHexString(bytes));
        Assert.Equal(new SessionState(1, 2, 3), SessionState.Read(bytes));
    }

    [Fact]
    public void Tree_Bytes_ArePinned()
    {
        using var bench = new ReplicaBench(1);
        bench.Lead(3);
        var session = bench.Append(request => request.OpenSession()).Etag;
        bench.Append(request =>
        {
            request.Identify(session, 65, 65);
            request.AddCondition(StoreBench.Text("a"), ConditionKind.Absent);
            request.AddCondition(StoreBench.Text("k"), ConditionKind.Exists);
            request.Put(StoreBench.Text("k"), StoreBench.Text("v"));
        });
        bench.Store.Commit(bench.Store.Last.Etag);
        var id = "00000000000000030000000000000002";
        var time = Convert.ToHexString(BitConverter.GetBytes((ReplicaBench.WallTime - DateTimeOffset.UnixEpoch).Ticks / TimeSpan.TicksPerMicrosecond));
        Assert.Equal(
            [
                "00 = 0100000000000000",
                $"01{id} = 41000000000000004200000000000000{time}",
                $"02{id}0000000000000001 = {new string('0', 40)}0700000003000000000000000200000000000000{new string('0', 62 * 40)}",
            ],
            bench.Sessions());
    }

    [Theory]
    [InlineData("0301020901", "names a session that is not open")]
    [InlineData("06FF", "is cut off")]
    [InlineData("0604030201", "ends within a result")]
    [InlineData("06050302010000", "has a result of no kind")]
    [InlineData("0606030201FF7F05", "has a sequence beyond the window")]
    [InlineData("070901", "ends a session that is not open")]
    public void Record_WhoseResultsCannotBe_StopsTheReplica(string payload, string why)
    {
        using var leader = new ReplicaBench(1);
        using var follower = new ReplicaBench(2);
        leader.Lead(3);
        leader.Append(request => request.OpenSession());
        follower.Follow(leader);
        var body = RecordBody.Encode(follower.Store.Last, RecordFlags.None, 3, payload.StartsWith("07", StringComparison.Ordinal) ? 1 : 0, 0, Convert.FromHexString(payload));
        Assert.True(follower.Store.Append(body, out var record));
        follower.Run();
        follower.Store.Commit(record.Etag);
        Assert.True(follower.Store.Failure is CorruptStoreException or UnreadableRecordException, $"A record that {why} was applied: {follower.Store.Failure}");
    }

    private static string Payload(ReplicaBench bench) =>
        Convert.ToHexString(RecordBody.Payload(bench.BodiesAfter(bench.Store.TryFindAtOrBefore(bench.Store.Last.Etag - 1, out var before) ? before.Etag : 0)[^1].Span));
}
