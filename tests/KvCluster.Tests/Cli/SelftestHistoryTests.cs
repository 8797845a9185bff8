using KvCluster.Cli.Selftest;

namespace KvCluster.Tests.Cli;

/// <summary>
/// What `kv selftest` has seen is judged rightly: mistakes that are planted in a history are found, and what may happen is not taken for one.
/// </summary>
public sealed class SelftestHistoryTests
{
    private readonly RegisterHistory _registers = new();
    private readonly WatchHistory _watch = new();

    [Fact]
    public void Registers_ThatOverlap_MayBeSeenInAnyOrderOfTheirEtags()
    {
        _registers.Put("k", "a", began: 0, ended: 10, Etag(1));
        _registers.Put("k", "b", began: 5, ended: 20, Etag(2));
        _registers.Put("k", "lost", began: 6, ended: 30, etag: null);
        _registers.Read("k", "a", began: 7, ended: 15, Etag(1));
        _registers.Read("k", "lost", began: 25, ended: 40, Etag(3));
        _registers.Read("other", "x", began: 50, ended: 60, Etag(1));
        _registers.Put("other", "x", began: 0, ended: 1, Etag(1));
        _registers.Judge();
    }

    [Fact]
    public void Registers_ReadStaleAfterAPut_AreFound()
    {
        _registers.Put("k", "a", began: 0, ended: 10, Etag(1));
        _registers.Put("k", "b", began: 11, ended: 20, Etag(2));
        _registers.Read("k", "a", began: 21, ended: 30, Etag(1));
        Found(_registers.Judge, "a read returned a");
    }

    [Fact]
    public void Registers_ReadStaleAfterARead_AreFound()
    {
        _registers.Put("k", "a", began: 0, ended: 10, Etag(1));
        _registers.Put("k", "b", began: 11, ended: 40, Etag(2));
        _registers.Read("k", "b", began: 12, ended: 20, Etag(2));
        _registers.Read("k", "a", began: 21, ended: 30, Etag(1));
        Found(_registers.Judge, "a read returned a");
    }

    [Fact]
    public void Registers_PutBehindALaterEtag_AreFound()
    {
        _registers.Put("k", "a", began: 0, ended: 10, Etag(2));
        _registers.Put("k", "b", began: 11, ended: 20, Etag(1));
        Found(_registers.Judge, "a put got etag");
    }

    [Theory]
    [InlineData("nobody's", 1, "nobody put")]
    [InlineData("a", 2, "was answered with")]
    [InlineData("future", 1, "before its put began")]
    public void Registers_ReadWhatWasNotPut_AreFound(string value, ulong change, string told)
    {
        _registers.Put("k", "a", began: 0, ended: 10, Etag(1));
        _registers.Put("k", "future", began: 100, ended: 110, etag: null);
        _registers.Read("k", value, began: 11, ended: 20, Etag(change));
        Found(_registers.Judge, told);
    }

    [Fact]
    public void Registers_ReadNothingAfterAPut_AreFound()
    {
        _registers.ReadNothing("k", began: 0, ended: 30);
        _registers.Put("k", "a", began: 0, ended: 10, Etag(1));
        _registers.ReadNothing("k", began: 11, ended: 20);
        Found(_registers.Judge, "a read found nothing although a");
    }

    [Fact]
    public void Registers_ReadNothingWhileTheFirstPutIsUnderWay_AreRight()
    {
        _registers.ReadNothing("k", began: 0, ended: 5);
        _registers.Put("k", "a", began: 1, ended: 10, Etag(1));
        _registers.ReadNothing("k", began: 9, ended: 20);
        _registers.Judge();
    }

    [Fact]
    public void Registers_PutOfUnknownOutcomeReadWithTwoEtags_AreFound()
    {
        _registers.Put("k", "a", began: 0, ended: 10, etag: null);
        _registers.Read("k", "a", began: 11, ended: 20, Etag(1));
        _registers.Read("k", "a", began: 21, ended: 30, Etag(2));
        Found(_registers.Judge, "was applied twice");
    }

    [Fact]
    public void Registers_TwoPutsWithOneEtag_AreFound()
    {
        _registers.Put("k", "a", began: 0, ended: 10, Etag(1));
        _registers.Put("k", "b", began: 5, ended: 15, Etag(1));
        Found(_registers.Judge, "an etag of its own");
    }

    [Fact]
    public void Watch_ThatToldOfEverythingOnce_IsRight()
    {
        foreach (var value in (string[])["a", "b", "unknown"])
            _watch.Sent(value);
        _watch.Told("k", "a", Etag(1));
        _watch.Answered("k", "a", Etag(1));
        _watch.Told("k", "unknown", Etag(2));
        _watch.Told("other", "b", Etag(1));
        _watch.Answered("other", "b", Etag(1));
        Assert.Equal(0, _watch.Missing);
        _watch.Judge();
    }

    [Theory]
    [InlineData("lost", "did not tell of b")]
    [InlineData("repeated", "twice")]
    [InlineData("reordered", "after")]
    [InlineData("changed", "with the value c")]
    [InlineData("invented", "nobody has put")]
    public void Watch_WithAMistake_IsFound(string mistake, string told)
    {
        foreach (var value in (string[])["a", "b", "c"])
            _watch.Sent(value);
        _watch.Answered("k", "a", Etag(1));
        _watch.Answered("k", "b", Etag(2));
        if (mistake != "reordered")
            _watch.Told("k", "a", Etag(1));
        if (mistake != "lost")
            _watch.Told("k", mistake switch { "changed" => "c", "invented" => "d", _ => "b" }, Etag(2));
        if (mistake == "repeated")
            _watch.Told("k", "b", Etag(2));
        if (mistake == "reordered")
            _watch.Told("k", "a", Etag(1));
        Found(_watch.Judge, told);
    }

    [Fact]
    public void Watch_ThatToldOfDeletes_IsRight()
    {
        foreach (var value in (string[])["a", WatchHistory.Deleted, WatchHistory.Deleted])
            _watch.Sent(value);
        _watch.Answered("k", WatchHistory.Deleted, Etag(2));
        _watch.Answered("k", WatchHistory.Deleted, Etag(3));
        _watch.Answered("k", "a", Etag(1));
        _watch.Told("k", "a", Etag(1));
        Assert.Equal(2, _watch.Missing);
        _watch.Told("k", WatchHistory.Deleted, Etag(2));
        _watch.Told("k", WatchHistory.Deleted, Etag(3));
        Assert.True(_watch.HasTold("k"));
        _watch.Judge();
    }

    [Fact]
    public void Watch_ThatToldOfAPutWithTwoEtags_IsFound()
    {
        _watch.Sent("a");
        _watch.Told("k", "a", Etag(1));
        _watch.Told("k", "a", Etag(2));
        Found(_watch.Judge, "was applied twice");
    }

    [Fact]
    public void Watch_ThatToldOfARefusedPut_IsFound()
    {
        _watch.Sent("a");
        _watch.Told("k", "a", Etag(1));
        _watch.Refused("a");
        Found(_watch.Judge, "certainly not applied");
    }

    /// <summary>A key that ended a fiftieth of its time early passed, and the cluster promises that none ends early.</summary>
    [Fact]
    public void Expiry_KeyGoneBeforeItsTime_IsFoundUnlessAClockMayBeTheReason()
    {
        Found(static () => ConcurrentChecks.CheckNotEarly(isThere: false, ConcurrentChecks.TimeToLive * 0.998), "was gone after 1.996 s");
        ConcurrentChecks.CheckNotEarly(isThere: false, ConcurrentChecks.TimeToLive * 0.9995);
        ConcurrentChecks.CheckNotEarly(isThere: true, TimeSpan.Zero);
    }

    private static void Found(Action judge, string told) => Assert.Contains(told, Assert.Throws<SelftestFailure>(judge).Message, StringComparison.Ordinal);

    private static Etag Etag(ulong change) => new(1, change);
}
