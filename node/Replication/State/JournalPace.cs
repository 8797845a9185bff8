namespace KvCluster.Replication.State;

/// <summary>
/// Compares how long records take to become durable in this replica's journal and in the others': for a leader, the time that a majority without it needs; for
/// a follower, the time that its leader reports for a majority. A disk is slow when it takes clearly longer for a few seconds, and fair again when it keeps up
/// for several times as long. So leaderships do not oscillate when a disk is in between or changes all the time. Without records the judgement does not
/// change. One per replica; called within its core's steps.
/// </summary>
internal sealed class JournalPace
{
    /// <summary>Records of this span are judged together by their means, so that one late sync makes one bad span.</summary>
    private const long SpanUs = 500_000;

    /// <summary>
    /// Consecutive bad spans for this long make a disk slow. Longer than a checkpoint's last sync or a neighbour's burst, and still short for waiting
    /// callers.
    /// </summary>
    private const long SlowAfterUs = 3_000_000;

    /// <summary>Consecutive good spans for this long make it fair again.</summary>
    private const long FairAfterUs = 10_000_000;

    /// <summary>The least number of consecutive spans, however rare writes are.</summary>
    private const int SpansMin = 3;

    /// <summary>
    /// Slow means more than twice the others' time plus this, a difference that callers notice. Smaller differences are scheduling and noise.
    /// </summary>
    private const long SlowBeyondUs = 2_000;

    /// <summary>Fair means at most one and a half times the others' time plus this, which is always below the bound for slow.</summary>
    private const long FairBeyondUs = 1_000;

    /// <summary>
    /// The longest wait for a timed record. If the others have it by then and this journal does not, it counts with the time waited; otherwise it does not
    /// count.
    /// </summary>
    private const long WaitMaxUs = 1_000_000;

    /// <summary>How long the last measurement is reported: several heartbeats.</summary>
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

    /// <summary>Whether this replica's disk is judged slow.</summary>
    public bool IsSlow { get; private set; }

    /// <summary>When a span was last judged, by the boot clock; <see cref="long.MinValue"/> if never.</summary>
    public long JudgedUs { get; private set; } = long.MinValue;

    /// <summary>Mean time that this journal needed in the last span judged; 0 before the first.</summary>
    public long OwnUs { get; private set; }

    /// <summary>On a leader, the time that a majority needed recently; 0 if not known.</summary>
    public long PaceUs(long nowUs) => nowUs - _paceAtUs < ToldForUs ? _paceUs : 0;

    /// <summary>The record being timed; <see cref="Etag.None"/> if none.</summary>
    public Etag Timed => _record;

    /// <summary>How long the record has been timed.</summary>
    public long TimedForUs(long nowUs) => nowUs - _sinceUs;

    /// <summary>A record was sent to this replica's journal and, by a leader, to the others. One record is timed at a time.</summary>
    public void Appended(Etag etag, long nowUs)
    {
        if (_record != Etag.None)
            return;
        (_record, _sinceUs) = (etag, nowUs);
        _ownUs = _othersUs = _committedUs = -1;
    }

    /// <summary>The record being timed may never become durable, because the leader changed or the journal is truncated.</summary>
    public void Forget()
    {
        _record = Etag.None;
        _paceAtUs = long.MinValue / 2;
    }

    /// <summary>On a leader: more records may have become durable somewhere.</summary>
    /// <param name="durable">Durable in this replica's journal.</param>
    /// <param name="durableAtUs">When it became that. This step may come long after it on busy processors, which tells nothing of the disk.</param>
    /// <param name="others">Durable on a majority without this replica; <see cref="Etag.None"/> if there is none.</param>
    /// <param name="committed">Durable on a majority.</param>
    /// <param name="nowUs">The boot clock.</param>
    public void Lead(Etag durable, long durableAtUs, Etag others, Etag committed, long nowUs)
    {
        if (_record == Etag.None)
            return;
        Reached(durable, ref _ownUs, Math.Min(durableAtUs, nowUs));
        Reached(others, ref _othersUs, nowUs);
        if (_committedUs < 0 && Reached(committed, ref _committedUs, nowUs))
            (_paceUs, _paceAtUs) = (nowUs - _paceAtUs < ToldForUs ? _paceUs + ((_committedUs - _paceUs) / 4) : _committedUs, nowUs);
        if ((_ownUs >= 0 && _othersUs >= 0) || nowUs - _sinceUs >= WaitMaxUs)
            End(_othersUs, nowUs);
    }

    /// <summary>On a follower: more records may have become durable.</summary>
    /// <param name="durable">Durable in this replica's journal.</param>
    /// <param name="durableAtUs">When it became that.</param>
    /// <param name="paceUs">The time that a majority needs, as reported by the leader; 0 if not known.</param>
    /// <param name="nowUs">The boot clock.</param>
    public void Follow(Etag durable, long durableAtUs, long paceUs, long nowUs)
    {
        if (_record == Etag.None)
            return;
        if (Reached(durable, ref _ownUs, Math.Min(durableAtUs, nowUs)) || nowUs - _sinceUs >= WaitMaxUs)
            End(paceUs > 0 ? paceUs : -1, nowUs);
    }

    private bool Reached(Etag etag, ref long tookUs, long nowUs)
    {
        if (tookUs < 0 && etag >= _record)
            tookUs = Math.Max(0, nowUs - _sinceUs);
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

    /// <summary>Consecutive spans for which the same condition holds.</summary>
    private readonly record struct Row(int Spans, long SinceUs)
    {
        public Row With(bool isTrue, long spanBeganUs) => !isTrue ? default : Spans == 0 ? new Row(1, spanBeganUs) : this with { Spans = Spans + 1 };

        public bool IsLong(long minUs, long nowUs) => Spans >= SpansMin && nowUs - SinceUs >= minUs;
    }
}
