namespace KvCluster.Replication.State;

/// <summary>
/// Compares how long records take to become durable in the own journal with how long the others need for them: a leader's with what a majority without it needs, a
/// follower's with what its leader says a majority needs. A disk is slow when it takes clearly longer than that for a few seconds, and no more when it keeps up
/// for several times as long; so that a disk in between, or one that changes all the time, moves nothing to and fro. Without records nothing is learned, and
/// the judgement stays. One a replica; called within its core's steps.
/// </summary>
internal sealed class JournalPace
{
    /// <summary>Records of this span are judged together, by their means: one late sync is one bad span.</summary>
    private const long SpanUs = 500_000;

    /// <summary>Bad spans in a row for so long make a disk slow: longer than a checkpoint's last sync or a neighbour's burst, and short for callers who wait.</summary>
    private const long SlowAfterUs = 3_000_000;

    /// <summary>Good spans in a row for so long end that.</summary>
    private const long FairAfterUs = 10_000_000;

    /// <summary>So many spans in a row at least, however seldom something is written.</summary>
    private const int SpansLeast = 3;

    /// <summary>Slow is more than twice the others' time and a difference that callers notice; below it are scheduling and noise.</summary>
    private const long SlowBeyondUs = 2_000;

    /// <summary>Keeping up is at most half as much again as the others' time, and this; below the bound for slow at any time of theirs.</summary>
    private const long FairBeyondUs = 1_000;

    /// <summary>A record is waited for as long as this: then one that others have and this journal lacks counts with that time, and any other says nothing.</summary>
    private const long WaitMaxUs = 1_000_000;

    /// <summary>What was measured last is told for as long as this, several heartbeats.</summary>
    private const long ToldForUs = 2_000_000;

    private Etag _record;
    private long _sinceUs;
    private long _ownUs;
    private long _othersUs;
    private long _committedUs;
    private long _spanBeganUs;
    private long _ownSumUs;
    private long _othersSumUs;
    private int _count;
    private Row _bad;
    private Row _good;
    private long _paceAtUs = long.MinValue / 2;
    private long _paceUs;

    /// <summary>The judgement.</summary>
    public bool IsSlow { get; private set; }

    /// <summary>When a span was judged last, by the boot clock; <see cref="long.MinValue"/>: never.</summary>
    public long JudgedUs { get; private set; } = long.MinValue;

    /// <summary>What the own journal needed in the last span judged; 0: none was.</summary>
    public long OwnUs { get; private set; }

    /// <summary>As a leader: what a majority needed of late; 0: not known.</summary>
    public long PaceUs(long nowUs) => nowUs - _paceAtUs < ToldForUs ? _paceUs : 0;

    /// <summary>The record being timed; <see cref="Etag.None"/>: none.</summary>
    public Etag Timed => _record;

    /// <summary>For how long.</summary>
    public long TimedForUs(long nowUs) => nowUs - _sinceUs;

    /// <summary>A record went to the own journal, and, leading, to the others. One is timed at a time.</summary>
    public void Appended(Etag etag, long nowUs)
    {
        if (_record != Etag.None)
            return;
        (_record, _sinceUs) = (etag, nowUs);
        _ownUs = _othersUs = _committedUs = -1;
    }

    /// <summary>What was timed may not come to its end any more: the leader changed, or the journal is cut.</summary>
    public void Forget()
    {
        _record = Etag.None;
        _paceAtUs = long.MinValue / 2;
    }

    /// <summary>Leading: more may have become durable somewhere.</summary>
    /// <param name="durable">In the own journal.</param>
    /// <param name="others">Of a majority without this replica; <see cref="Etag.None"/> where there is none.</param>
    /// <param name="committed">Of a majority.</param>
    /// <param name="nowUs">The boot clock.</param>
    public void Lead(Etag durable, Etag others, Etag committed, long nowUs)
    {
        if (_record == Etag.None)
            return;
        Reached(durable, ref _ownUs, nowUs);
        Reached(others, ref _othersUs, nowUs);
        if (_committedUs < 0 && Reached(committed, ref _committedUs, nowUs))
            (_paceUs, _paceAtUs) = (nowUs - _paceAtUs < ToldForUs ? _paceUs + ((_committedUs - _paceUs) / 4) : _committedUs, nowUs);
        if ((_ownUs >= 0 && _othersUs >= 0) || nowUs - _sinceUs >= WaitMaxUs)
            End(_othersUs, nowUs);
    }

    /// <summary>Following: more may have become durable.</summary>
    /// <param name="durable">In the own journal.</param>
    /// <param name="paceUs">What the leader says a majority needs; 0: not known.</param>
    /// <param name="nowUs">The boot clock.</param>
    public void Follow(Etag durable, long paceUs, long nowUs)
    {
        if (_record == Etag.None)
            return;
        if (Reached(durable, ref _ownUs, nowUs) || nowUs - _sinceUs >= WaitMaxUs)
            End(paceUs > 0 ? paceUs : -1, nowUs);
    }

    private bool Reached(Etag etag, ref long tookUs, long nowUs)
    {
        if (tookUs < 0 && etag >= _record)
            tookUs = nowUs - _sinceUs;
        return tookUs >= 0;
    }

    private void End(long othersUs, long nowUs)
    {
        var ownUs = _ownUs >= 0 ? _ownUs : nowUs - _sinceUs;
        _record = Etag.None;
        if (othersUs < 0)
            return;
        if (_count == 0)
            _spanBeganUs = _sinceUs;
        _count++;
        _ownSumUs += ownUs;
        _othersSumUs += othersUs;
        if (nowUs - _spanBeganUs >= SpanUs)
            Judge(nowUs);
    }

    private void Judge(long nowUs)
    {
        var (ownUs, othersUs) = (_ownSumUs / _count, _othersSumUs / _count);
        (_ownSumUs, _othersSumUs, _count) = (0, 0, 0);
        _bad = _bad.With(ownUs > (2 * othersUs) + SlowBeyondUs, _spanBeganUs);
        _good = _good.With(ownUs <= (othersUs * 3 / 2) + FairBeyondUs, _spanBeganUs);
        IsSlow = IsSlow ? !_good.IsLong(FairAfterUs, nowUs) : _bad.IsLong(SlowAfterUs, nowUs);
        (OwnUs, JudgedUs) = (ownUs, nowUs);
    }

    /// <summary>Spans in a row of which the same is true.</summary>
    private readonly record struct Row(int Spans, long SinceUs)
    {
        public Row With(bool isTrue, long spanBeganUs) => !isTrue ? default : Spans == 0 ? new Row(1, spanBeganUs) : this with { Spans = Spans + 1 };

        public bool IsLong(long leastUs, long nowUs) => Spans >= SpansLeast && nowUs - SinceUs >= leastUs;
    }
}
