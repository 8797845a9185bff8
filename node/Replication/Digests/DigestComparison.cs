using Google.Protobuf;
using KvCluster.Internal.V1;
using KvCluster.Replication.Log;
using KvCluster.Replication.Progress;
using KvCluster.Replication.Protocol;
using KvCluster.Replication.State;

namespace KvCluster.Replication.Digests;

/// <summary>
/// A leader's side of comparing the trees of its voters in the background. At an interval it names its newest record; each voter computes the digest of its
/// trees when exactly that record is applied; and a voter whose digest differs from the majority's is told to stop for good. One per epoch. The followers' side
/// is <see cref="DigestAnswers"/>.
/// </summary>
/// <remarks>
/// The journal's safety does not depend on this, so nothing waits for it: a missing answer is one digest less to judge by. Replicas are quarantined only if
/// a majority of voters has reported the same digest, and only when a majority has everything that is committed without the help of the quarantined replica.
/// </remarks>
internal sealed class DigestComparison
{
    // A comparison without a result is retried after this fraction of the interval.
    private const int RetriesInAnInterval = 16;

    // A voter that is silent for this many of the greatest timeout is not waited for, because digests may take hours.
    private const int SilentTimeouts = 4;

    private readonly ReplicaContext _context;
    private readonly Func<FollowerProgress, Frame> _frameTo;
    private readonly SeededRandom _random;
    private readonly Dictionary<ReplicaId, ByteString?> _reports = [];
    private readonly Dictionary<ReplicaId, Condemned> _condemned = [];
    private ulong _number;
    private Etag _etag;
    private long _dueUs;
    private long _beganUs = long.MinValue / 2;
    private long _deadlineUs;
    private long _repeatUs;
    private bool _differs;

    /// <param name="context">The replica.</param>
    /// <param name="epoch">The epoch that it leads.</param>
    /// <param name="frameTo">Creates a frame to a follower.</param>
    public DigestComparison(ReplicaContext context, ulong epoch, Func<FollowerProgress, Frame> frameTo)
    {
        _context = context;
        _frameTo = frameTo;
        // Independent of the election's numbers, and different for each shard, so that shards of a node that were led since the same moment do not compare
        // at once.
        _random = new SeededRandom(context.Self.Value ^ (epoch << 32) ^ context.Shard.Value);
        _dueUs = IntervalUs == 0 ? long.MaxValue : context.NowUs + _random.Between(RetryUs, IntervalUs + 1);
    }

    /// <summary>Digests are awaited, or a follower is being told to stop.</summary>
    public bool Busy => Running || _condemned.Count > 0;

    /// <summary>The last comparison that found no difference.</summary>
    public DigestsCompared? Last { get; private set; }

    /// <summary>The last comparison that found no difference; null if a later one has found a difference.</summary>
    public DigestsCompared? Agreement => _differs ? null : Last;

    /// <summary>The next time at which something is due by the clock.</summary>
    public long DueUs
    {
        get
        {
            var dueUs = Running ? Math.Min(_deadlineUs, _repeatUs) : _dueUs;
            foreach (var condemned in _condemned.Values)
                dueUs = Math.Min(dueUs, condemned.RepeatUs);
            return dueUs;
        }
    }

    private bool Running => _etag != Etag.None;

    private long IntervalUs => _context.Options.DigestIntervalUs;

    private long RetryUs => IntervalUs / RetriesInAnInterval;

    /// <summary>Whether its tree is known to be wrong. Its acknowledgements no longer count.</summary>
    public bool IsCondemned(ReplicaId replica) => _condemned.Count > 0 && _condemned.ContainsKey(replica);

    /// <summary>Whether a comparison should begin now, if the shard is in order.</summary>
    public bool IsDue => !Running && _context.NowUs >= _dueUs;

    /// <summary>Postpones the comparison, because the shard has other things to do.</summary>
    public void Postpone() => _dueUs = _context.NowUs + _context.Options.DigestRepeatUs;

    /// <summary>Names the newest record to these voters and to this replica itself.</summary>
    public void Begin(IReadOnlyCollection<FollowerProgress> voters)
    {
        Invariant.Check(!Running && _reports.Count == 0, $"A comparison of digests begins while that at {_etag} is in progress.");
        _beganUs = _context.NowUs;
        _number++;
        _etag = _context.Journal.Last.Etag;
        _deadlineUs = _context.NowUs + _context.Options.DigestTimeUs;
        foreach (var voter in voters)
            _reports[voter.Replica] = null;
        // Sent before anything else, so that it arrives before the voter learns that the record is committed.
        Ask(voters);
        _context.OwnDigest.Take(_number, _etag);
    }

    /// <summary>A follower reported its digest.</summary>
    public void OnReport(FollowerProgress follower, DigestReport report)
    {
        if (Running && report.Number == _number && _reports.ContainsKey(follower.Replica))
            _reports[follower.Replica] = report.Digest;
    }

    /// <summary>
    /// Brings the next comparison forward: a former leader whose digest differed when it led asks for one, or somebody waits for it. Two comparisons never
    /// begin within the pause of one without a result. Nothing is compared where comparisons are switched off.
    /// </summary>
    public void Hasten()
    {
        if (IntervalUs > 0)
            _dueUs = Math.Min(_dueUs, Math.Max(_context.NowUs, _beganUs + RetryUs));
    }

    /// <summary>A follower has a new process, or its state is being replaced. What was known of its trees is void.</summary>
    public void OnReplaced(FollowerProgress follower)
    {
        if (_reports.ContainsKey(follower.Replica))
            _reports[follower.Replica] = ByteString.Empty;
        if (_condemned.Remove(follower.Replica))
            Hasten();
    }

    /// <summary>Asks again, and judges when the time is up.</summary>
    public void OnTick(IReadOnlyCollection<FollowerProgress> followers, Quorum quorum)
    {
        if (Running && _context.NowUs >= _deadlineUs)
            Judge(quorum);
        else if (Running && _context.NowUs >= _repeatUs)
            Ask([.. followers.Where(follower => _reports.TryGetValue(follower.Replica, out var report) && report is null)]);
    }

    /// <summary>Judges when all digests are known, and tells condemned replicas to stop.</summary>
    /// <param name="followers">All other replicas.</param>
    /// <param name="quorum">The voters.</param>
    /// <param name="durableOf">What a replica has durable and matched; nothing if it <see cref="IsCondemned"/>.</param>
    public void Advance(IReadOnlyDictionary<ReplicaId, FollowerProgress> followers, Quorum quorum, Func<ReplicaId, Etag> durableOf)
    {
        if (Running)
        {
            foreach (var replica in _reports.Keys.ToList())
            {
                if (_reports[replica] is null && !(followers.TryGetValue(replica, out var follower) && MayReport(follower)))
                    _reports[replica] = ByteString.Empty;
            }

            var nobodyElse = _reports.Values.All(report => report is { IsEmpty: true });
            if (nobodyElse || (_context.OwnDigest.Value is not null && _reports.Values.All(report => report is not null)))
                Judge(quorum);
        }

        foreach (var (replica, condemned) in _condemned.ToList())
        {
            if (!followers.TryGetValue(replica, out var follower))
                _condemned.Remove(replica);
            else if (follower.State == FollowerState.Snapshot)
                OnReplaced(follower);
            else if (_context.NowUs >= condemned.RepeatUs)
                Tell(follower, condemned, mayGo: quorum.Agreed(durableOf) >= condemned.Committed);
        }
    }

    private bool MayReport(FollowerProgress follower) =>
        follower.State != FollowerState.Snapshot && _context.NowUs - follower.HeardUs < SilentTimeouts * _context.Options.TimeoutMaxUs;

    private void Ask(IReadOnlyCollection<FollowerProgress> voters)
    {
        _repeatUs = _context.NowUs + _context.Options.DigestRepeatUs;
        foreach (var voter in voters)
        {
            var frame = _frameTo(voter);
            frame.DigestAsk = new DigestAsk { Number = _number, Etag = _etag.ToWire() };
            _context.Send(frame);
        }
    }

    private void Judge(Quorum quorum)
    {
        var digests = _reports.Where(report => report.Value is { IsEmpty: false }).ToDictionary(report => report.Key, report => report.Value!);
        if (_context.OwnDigest.Value is { IsEmpty: false } own)
            digests[_context.Self] = own;
        var verdict = DigestVerdict.Of(quorum, digests);
        var isDone = verdict.Compared > 1;
        _differs = isDone ? verdict.Distinct > 1 : _differs;
        if (!isDone)
            _context.Log($"no digests to compare at {_etag}: the voters had already passed it or gave up; the comparison is repeated later");
        else if (verdict.Distinct == 1)
            Last = new DigestsCompared(_etag, verdict.Compared, _context.NowUs) { Voters = [.. digests.Keys] };
        else if (verdict.Expected is null)
            _context.Emit(new Effect.Alarm($"the trees of the voters differ at {_etag} and no majority agrees; no replica is rebuilt: {Shown(digests)}"));
        else if (verdict.Odd.Contains(_context.Self))
            DoubtItself(digests);
        else
            Condemn(verdict, digests);
        _context.OwnDigest.Forget();
        _reports.Clear();
        _etag = Etag.None;
        var pauseUs = isDone ? IntervalUs : RetryUs;
        _dueUs = _context.NowUs + (pauseUs * 3 / 4) + _random.Between(0, (pauseUs / 2) + 1);
    }

    // A leader whose own tree differs from the majority's tells nobody to stop, not even itself. The next leader compares again.
    private void DoubtItself(Dictionary<ReplicaId, ByteString> digests)
    {
        _context.TreeDoubted = true;
        _context.Emit(new Effect.Alarm(
            $"this leader's trees differ from the majority's at {_etag}; it transfers its leadership so that it can be rebuilt: {Shown(digests)}"));
    }

    private void Condemn(DigestVerdict verdict, Dictionary<ReplicaId, ByteString> digests)
    {
        foreach (var odd in verdict.Odd)
        {
            Invariant.Check(odd != _context.Self && digests[odd] != verdict.Expected, $"Replica {odd} is condemned, whose digest is the majority's.");
            _condemned[odd] = new Condemned(_number, digests[odd], verdict.Expected!, _context.Committed, _context.NowUs);
            _context.Emit(new Effect.Alarm(
                $"the trees of replica {odd} differ from the majority's at {_etag}; it is quarantined so that it can be rebuilt: {Shown(digests)}"));
        }
    }

    private void Tell(FollowerProgress follower, Condemned condemned, bool mayGo)
    {
        _condemned[follower.Replica] = condemned with { RepeatUs = _context.NowUs + _context.Options.HeartbeatIntervalUs };
        // A silent replica has stopped already, or would not receive this either.
        if (!mayGo || _context.NowUs - follower.HeardUs >= _context.Options.TimeoutMinUs)
            return;
        var frame = _frameTo(follower);
        frame.DigestDiffers = new DigestDiffers { Number = condemned.Number, Reported = condemned.Reported, Expected = condemned.Expected };
        _context.Send(frame);
    }

    private static string Shown(Dictionary<ReplicaId, ByteString> digests) =>
        string.Join(", ", digests.OrderBy(digest => digest.Key).Select(digest => $"{digest.Key} has {DigestAnswers.Shown(digest.Value)}"));

    private sealed record Condemned(ulong Number, ByteString Reported, ByteString Expected, Etag Committed, long RepeatUs);
}
