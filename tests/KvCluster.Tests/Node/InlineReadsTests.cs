using KvCluster.Node.Api;

namespace KvCluster.Tests.Node;

/// <summary>
/// When the loop of an exchange reads trees itself. It always did where a place was free, and it needs only one: 128 Gets of pages that the disk needed 200 ms for were read one after the other, and
/// what came behind them on the stream, of other callers and other shards, waited for 25 seconds.
/// </summary>
public sealed class InlineReadsTests
{
    private const long Second = 1_000_000;
    private const long Millisecond = 1_000;

    private bool _waits;
    private long _waited;
    private int _asked;

    [Fact]
    public void Begun_AfterASecondCallThatWaitedForTheDisk_KeepsTheLoopAwayForAMultipleOfThat()
    {
        var reads = Create();
        _waits = true;
        Assert.True(reads.Begun(0));
        // Of the first nobody knows whether it was the disk.
        Assert.True(reads.Begun(5 * Millisecond));
        Assert.False(reads.Begun(15 * Millisecond));
        Assert.False(reads.Begun((15 * Millisecond) + 1));
        Assert.False(reads.Begun((15 * Millisecond) + 2));
        reads.Ended((15 * Millisecond) + 3);
        reads.Starts((15 + 160) * Millisecond);
        Assert.True(reads.Begun((15 + 160) * Millisecond));
        // Now it is known at once.
        reads.Ended((15 + 160 + 1) * Millisecond);
        Assert.False(reads.Begun((15 + 160 + 1 + 16) * Millisecond - 1));
    }

    [Fact]
    public void Begun_AfterMessagesOfOneCallThatWaitedForTheDisk_KeepsTheLoopAway()
    {
        var reads = Create();
        _waits = true;
        Assert.True(reads.Begun(0));
        reads.Ended(Millisecond);
        reads.Starts(2 * Millisecond);
        Assert.True(reads.Begun(2 * Millisecond));
        reads.Ended(3 * Millisecond);
        reads.Starts(4 * Millisecond);
        Assert.False(reads.Begun(4 * Millisecond));
    }

    // On a busy machine a loop has no processor for milliseconds many times a second, and reads elsewhere cost several times as much.
    [Fact]
    public void Begun_AfterCallsThatHadNoProcessor_LetsTheLoopRead()
    {
        var reads = Create();
        for (var now = 0L; now < Second; now += 50 * Millisecond)
            Assert.True(reads.Begun(now));
    }

    // What the thread waited for before, in other work, is not the call's.
    [Fact]
    public void Begun_AfterACallWithoutWaitsOnAThreadThatHadSome_LetsTheLoopRead()
    {
        var reads = Create();
        for (var now = 0L; now < 10 * Second; now += Second / 2)
        {
            _waited += 5;
            reads.Starts(now);
            Assert.True(reads.Begun(now));
            reads.Ended(now + (5 * Millisecond));
        }
    }

    [Fact]
    public void Begun_AfterQuickCallsAndATimeWithoutAny_LetsTheLoopReadAndAsksNobody()
    {
        var reads = Create();
        _waits = true;
        for (var now = 0L; now < 100 * Millisecond; now += 200)
            Assert.True(reads.Begun(now));
        reads.Ended(100 * Millisecond);
        reads.Starts(100 * Second);
        Assert.True(reads.Begun(100 * Second));
        Assert.Equal(0, _asked);
    }

    [Fact]
    public void Begun_AfterACallThatTookVeryLong_TriesAgainAfterTenSeconds()
    {
        var reads = Create();
        _waits = true;
        Assert.True(reads.Begun(0));
        Assert.True(reads.Begun(30 * Second));
        Assert.False(reads.Begun(60 * Second));
        reads.Ended((60 * Second) + 1);
        reads.Starts(70 * Second);
        Assert.True(reads.Begun(70 * Second));
    }

    [Fact]
    public void OfThisThread_OfAThreadThatDoesNothing_StaysTheSame()
    {
        var rounds = 0;
        // Its own code may be fetched first.
        for (var before = -1L; DiskWaits.OfThisThread() is var now && now != before; before = now)
            Assert.True(++rounds < 1_000);
    }

    private InlineReads Create()
    {
        var reads = new InlineReads(Second, () =>
        {
            _asked++;
            return _waits ? ++_waited : _waited;
        });
        reads.Starts(0);
        return reads;
    }
}
