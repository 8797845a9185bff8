using KvCluster.Storage.Encoding;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;
using KvCluster.Tests.Storage.Store;

namespace KvCluster.Tests.Storage.Sessions;

/// <summary>Pins what FORMAT.md says of sessions and results, in records and in the tree.</summary>
public sealed class SessionFormatTests
{
    private const string IdBytes = "A1A2A3A4A5A6A7A8A9AAABACADAEAFB0";
    private const string OtherBytes = "B1A2A3A4A5A6A7A8A9AAABACADAEAFB0";
    private static readonly UInt128 Id = new(0xA1A2A3A4A5A6A7A8, 0xA9AAABACADAEAFB0);

    [Fact]
    public void Record_WithResults_Bytes_ArePinned()
    {
        using var bench = new ReplicaBench(new(1));
        bench.Lead(3);
        var session = bench.OpenSession(Id);
        Assert.Equal("05" + IdBytes + "0900000007000000" + "00", Payload(bench));
        bench.Submit(request =>
        {
            request.Identify(session, 7, 7);
            request.Put(StoreBench.Text("k"), StoreBench.Text("v"));
        });
        bench.Submit(request =>
        {
            request.Identify(session, 6, 6);
            request.Delete(StoreBench.Text("k"));
        });
        bench.Submit(request =>
        {
            request.Identify(session, 10, 7);
            request.Delete(StoreBench.Text("k"));
        });
        bench.Append(request =>
        {
            request.Identify(session, 9, 7);
            request.AddCondition(StoreBench.Text("k"), ConditionKind.Exists);
            request.Delete(StoreBench.Text("k"));
        });
        // 7 applied as change 3; 6 is closed; 10 deleted as change 4; 9 failed at change 4.
        Assert.Equal("01016B000176" + "02016B" + "0625" + IdBytes + "07" + "0009" + "828F21C6" + "040A02" + "BF77C26D" + "030300" + "75E414E6", Payload(bench));
    }

    [Fact]
    public void Record_WithNothingButAFailedCondition_IsResultOnlyAndHasItsOwnChange()
    {
        using var bench = new ReplicaBench(new(1));
        bench.Lead(3);
        var session = bench.OpenSession(Id);
        var before = bench.Store.Log.Last;
        bench.Append(request =>
        {
            request.Identify(session, 1, 1);
            request.AddCondition(StoreBench.Text("k"), ConditionKind.Exists);
            request.Put(StoreBench.Text("k"), StoreBench.Text("v"));
        });
        Assert.Equal("0618" + IdBytes + "01" + "000300" + "984DE922", Payload(bench));
        Assert.Equal((before.Change + 1, RecordFlags.ResultOnly | RecordFlags.ShardTime), (bench.Store.Log.Last.Change, bench.Store.Log.Last.Flags));
    }

    [Fact]
    public void Record_WithResultsOfOperations_Bytes_ArePinned_AndThoseOfTheTree()
    {
        using var bench = new ReplicaBench(new(1));
        bench.Lead(3);
        var session = bench.OpenSession(Id);
        bench.Append(request =>
        {
            request.Identify(session, 65, 65);
            request.WantsResults = true;
            request.AddCondition(StoreBench.Text("k"), ConditionKind.Exists);
            request.BeginFailureList();
            request.Increment(StoreBench.Text("k"), 7);
            request.Delete(StoreBench.Text("a"));
            request.SetAdd(StoreBench.Text("s"), StoreBench.Text("m"));
            request.Put(StoreBench.Text("p"), StoreBench.Text("v"), new PutTerms(0, 0, IsNumbered: true));
            request.Scan(StoreBench.Text("k"), StoreBench.Text("q"), 1, keysOnly: false);
        });
        var key = "1570" + string.Concat(Enumerable.Repeat("30", 19)) + "31";
        var results = "0100" // The first condition, and no keys.
            + "0903030E" // Change 3 of epoch 3, and 7.
            + "030304" // Change 4; there was no key.
            + "0B030502" // Change 5; there was no member, and there is one.
            + "11030601" + key + "000306" // Change 6, with the key.
            + "30" + "01" + "016B" + "0137" + "0303"; // One entry, and more.
        Assert.Contains(results, Payload(bench), StringComparison.Ordinal);
        Assert.Contains($"06{IdBytes}0000000000000041 = {results}", bench.Sessions());
    }

    [Fact]
    public void State_Bytes_ArePinned()
    {
        var bytes = new byte[SessionState.Bytes];
        var state = new SessionState(1, 2, 3, new QuotaOwner(4, 5), new Etag(6, 7), 8);
        state.WriteTo(bytes);
        Assert.Equal(
            "0100000000000000" + "0200000000000000" + "0300000000000000" + "0500000004000000" + "0600000000000000" + "0700000000000000" + "0800000000000000",
            Convert.ToHexString(bytes));
        Assert.Equal(state, SessionState.Read(bytes));
    }

    [Fact]
    public void Tree_Bytes_ArePinned()
    {
        using var bench = new ReplicaBench(new(1));
        bench.Lead(3);
        var session = bench.OpenSession(Id);
        bench.Append(request =>
        {
            request.Identify(session, 65, 65);
            request.AddCondition(StoreBench.Text("a"), ConditionKind.Absent);
            request.AddCondition(StoreBench.Text("k"), ConditionKind.Exists);
            request.Put(StoreBench.Text("k"), StoreBench.Text("v"));
        });
        bench.Commit(bench.Store.Log.Last.Etag);
        var time = Convert.ToHexString(BitConverter.GetBytes((ReplicaBench.WallTime - DateTimeOffset.UnixEpoch).Ticks / TimeSpan.TicksPerMicrosecond));
        Assert.Equal(
            [
                "00 = 0100000000000000",
                $"01{IdBytes} = 41000000000000004200000000000000{time}090000000700000003000000000000000200000000000000{new string('0', 16)}",
                $"02{IdBytes}0000000000000001 = {new string('0', 48)}0B00000003000000000000000200000000000000984DC641{new string('0', 62 * 48)}",
                "0300000007 = 0100000000000000",
                "040000000700000009 = 0100000000000000",
            ],
            bench.Sessions());
    }

    [Theory]
    [InlineData("0611" + OtherBytes + "01", "names a session that is not open")]
    [InlineData("06FF", "is cut off")]
    [InlineData("0612" + IdBytes + "0100", "ends within a result")]
    [InlineData("0616" + IdBytes + "01000900", "ends within a digest")]
    [InlineData("0617" + IdBytes + "01000000000000", "has a result of no kind")]
    [InlineData("0618" + IdBytes + "0100050000000000", "has a result of an unknown kind")]
    [InlineData("0618" + IdBytes + "01FF7F0900000000", "has a sequence beyond the window")]
    [InlineData("0619" + IdBytes + "01000C000000000200", "ends within the results of operations")]
    [InlineData("0619" + IdBytes + "01000C000000000180", "has malformed results of operations")]
    [InlineData("07" + OtherBytes, "ends a session that is not open")]
    [InlineData("05" + IdBytes + "0900000007000000", "opens a session that is open")]
    [InlineData("10" + OtherBytes + "05", "says what is left of a session that is not open")]
    [InlineData("10" + IdBytes + "05", "says what is left of a session without a lifetime")]
    [InlineData("10" + IdBytes, "does not say what is left")]
    public void Record_WithInvalidResults_StopsTheReplica(string payload, string why)
    {
        using var leader = new ReplicaBench(new(1));
        using var follower = new ReplicaBench(new(2));
        leader.Lead(3);
        leader.OpenSession(Id);
        follower.Follow(leader);
        var body = RecordBody.Encode(
            follower.Store.Log.Last, RecordFlags.None, 3, payload.StartsWith("06", StringComparison.Ordinal) ? 0 : 1, 0, Convert.FromHexString(payload), out _);
        Assert.True(follower.Store.TryAppend(body, out var record));
        follower.Run();
        follower.Commit(record.Etag);
        Assert.True(follower.Store.Life.Failure is CorruptStoreException or UnreadableRecordException, $"A record that {why} was applied: "
            + $"{follower.Store.Life.Failure}");
    }

    /// <summary>A session's id must not appear in a log, and the reason why a replica stopped is logged.</summary>
    [Fact]
    public void Failure_OfASession_DoesNotContainItsId()
    {
        using var leader = new ReplicaBench(new(1));
        leader.Lead(3);
        leader.OpenSession(Id);
        leader.Store.Writes.StopLeading();
        var body = RecordBody.Encode(leader.Store.Log.Last, RecordFlags.None, 3, 1, 0, Convert.FromHexString("05" + IdBytes + "0900000007000000"), out _);
        Assert.True(leader.Store.TryAppend(body, out var record));
        leader.Run();
        leader.Commit(record.Etag);
        Assert.NotNull(leader.Store.Life.Failure);
        Assert.DoesNotContain("A1A2", leader.Store.Life.Failure.ToString(), StringComparison.OrdinalIgnoreCase);
        Assert.DoesNotContain(Id.ToString(System.Globalization.CultureInfo.InvariantCulture), leader.Store.Life.Failure.ToString(), StringComparison.Ordinal);
    }

    [Fact]
    public void Tree_OfASessionWithALifetime_Bytes_ArePinned()
    {
        using var bench = new ReplicaBench(new(1));
        bench.Lead(3);
        Assert.Equal(WriteOutcome.Applied, bench.Append(request => request.OpenSession(Id, ReplicaBench.Owner, 0x1234)).Outcome);
        Assert.Equal("05" + IdBytes + "0900000007000000" + "B424", Payload(bench));
        var time = Convert.ToHexString(BitConverter.GetBytes((ReplicaBench.WallTime - DateTimeOffset.UnixEpoch).Ticks / TimeSpan.TicksPerMicrosecond));
        Assert.Equal(
            [
                "07 = 0100000000000000",
                $"07{IdBytes} = 01000000000000000100000000000000{time}0900000007000000030000000000000002000000000000003412000000000000",
                "080000000700000009 = 0100000000000000",
            ],
            bench.Sessions());
        bench.Append(request => request.Put(StoreBench.Text("k"), StoreBench.Text("v"), new KeyLife(0x0102030405, new Etag(3, 2))));
        Assert.Equal(["00000001020304050000000000000003" + "0000000000000003 = 6B"], bench.Entries(TreeId.Expiry));
        Assert.Equal(["00000000000000030000000000000002 = 01000000000000000100000000000000", "000000000000000300000000000000020000000000000003"
            + "0000000000000003 = 6B"], bench.Entries(TreeId.Owned));
    }

    private static string Payload(ReplicaBench bench)
    {
        var before = bench.Store.Reader.TryFindAtOrBefore(bench.Store.Log.Last.Etag.Predecessor, out var found) ? found.Etag : Etag.None;
        using var payload = new RecordPayload(bench.BodiesAfter(before)[^1].Span);
        return Convert.ToHexString(payload.Operations);
    }
}
