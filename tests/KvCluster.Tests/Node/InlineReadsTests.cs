using KvCluster.Node.Api;

namespace KvCluster.Tests.Node;

/// <summary>
/// When the loop of an exchange reads trees itself. It used to do so whenever a place was free, and it needs only one. 128 Gets of pages for which
/// the disk needed 200 ms were read one after the other, and later calls on the stream, of other callers and other shards, waited for 25 seconds.
/// </summary>
public sealed class InlineReadsTests
{
    private const long Second = 1_000_000;
    private const long Millisecond = 1_000;

    private bool _waits;
    private long _waited;
    private int _asked;

    [Fact]
    public void Begun_AfterASecondWaitForTheDisk_KeepsTheLoopAwayForAMultipleOfTheWait()
    {
        var reads = Create();
        _waits = true;
        Assert.True(reads.Begun(0));
        // After the first call it is unknown whether the disk was the cause.
        Assert.True(reads.Begun(5 * Millisecond));
        Assert.False(reads.Begun(15 * Millisecond));
        Assert.False(reads.Begun((15 * Millisecond) + 1));
        Assert.False(reads.Begun((15 * Millisecond) + 2));
        reads.Ended((15 * Millisecond) + 3);
        reads.Starts((15 + 160) * Millisecond);
        Assert.True(reads.Begun((15 + 160) * Millisecond));
        // Now the cause is known at once.
        reads.Ended((15 + 160 + 1) * Millisecond);
        Assert.False(reads.Begun((15 + 160 + 1 + 16) * Millisecond - 1));
    }

    [Fact]
    public void Begun_AfterSingleCallsThatWaitedForTheDisk_KeepsTheLoopAway()
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

    // On a busy machine a loop loses its processor for milliseconds many times a second, and reads on other threads cost several times as much.
    [Fact]
    public void Begun_AfterCallsThatLostTheProcessor_LetsTheLoopRead()
    {
        var reads = Create();
        for (var now = 0L; now < Second; now += 50 * Millisecond)
            Assert.True(reads.Begun(now));
    }

    // Waits of the thread before the call, in other work, do not count for the call.
    [Fact]
    public void Begun_AfterACallWithoutWaitsOnAThreadThatHadWaited_LetsTheLoopRead()
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
    public void Begun_AfterQuickCallsOrAPause_LetsTheLoopReadWithoutMeasuring()
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
    public void Begun_AfterAVeryLongCall_TriesAgainAfterTenSeconds()
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
    public void OfThisThread_IdleThread_StaysTheSame()
    {
        var rounds = 0;
        // The first calls may still load this test's own code.
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
