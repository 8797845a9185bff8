// What a node's replicas find out about the disk that they share. Each measures for itself, while its shard is written; the others learn of it here, so that the
// shards that rest leave a slow disk too, and none comes to it. Called by replicas on their writers' threads; telling goes by a timer of the node's clock.
namespace KvCluster.Node.Shards;

/// <summary>The judgement of one node's disk, out of its replicas' own.</summary>
/// <param name="clock">For pacing.</param>
internal sealed class NodeDisk(TimeProvider clock)
{
    /// <summary>A replica's judgement counts for so long after it was made; where none is as young, what was found out before stays.</summary>
    private static readonly TimeSpan JudgedFor = TimeSpan.FromSeconds(30);

    /// <summary>Between two replicas that are told: a leader that is told hands over, and fifty hand-overs a second are what coordinator and peers take in passing.</summary>
    private static readonly TimeSpan Pace = TimeSpan.FromMilliseconds(20);

    private readonly Lock _gate = new();
    private readonly List<Share> _shares = [];
    private readonly Queue<Share> _untold = new();
    private ITimer? _timer;
    private bool _isSlow;

    /// <summary>A replica begins to use the disk.</summary>
    /// <param name="leads">Whether it leads: leaders are told first.</param>
    /// <param name="tell">Told what the disk is, at once if it is slow. Must not block, nor judge; on any thread, with the lock.</param>
    public Share Join(Func<bool> leads, Action<bool> tell)
    {
        var share = new Share(this, leads, tell);
        lock (_gate)
        {
            _shares.Add(share);
            share.TellLocked(_isSlow);
        }
        return share;
    }

    private void Judged(Share by)
    {
        lock (_gate)
        {
            var now = clock.GetTimestamp();
            var (young, slow) = (0, 0);
            foreach (var share in _shares)
            {
                if (!share.HasJudged || clock.GetElapsedTime(share.JudgedAt, now) > JudgedFor)
                    continue;
                young++;
                slow += share.JudgedSlow ? 1 : 0;
            }
            // From half on, and until none is left, so that replicas which come to their judgements one after the other do not turn it each time.
            var isSlow = _isSlow ? slow > 0 : young > 0 && 2 * slow >= young;
            if (isSlow != _isSlow)
                TurnLocked(isSlow);
            // What it knows by itself it need not wait for.
            if (_isSlow == by.JudgedSlow)
                by.TellLocked(_isSlow);
        }
    }

    private void TurnLocked(bool isSlow)
    {
        _isSlow = isSlow;
        _untold.Clear();
        foreach (var share in _shares.OrderByDescending(share => share.Leads()))
            _untold.Enqueue(share);
        _timer ??= clock.CreateTimer(_ => TellNext(), null, Pace, Timeout.InfiniteTimeSpan);
    }

    private void TellNext()
    {
        lock (_gate)
        {
            Share? next;
            // Those that knew by themselves take no turn.
            do
            {
                if (!_untold.TryDequeue(out next))
                {
                    _timer?.Dispose();
                    _timer = null;
                    return;
                }
            }
            while (next.Told == _isSlow);
            _timer?.Change(Pace, Timeout.InfiniteTimeSpan);
            // With the lock, or a thread that lost its processor here could tell at last what has long changed, and be believed.
            next.TellLocked(_isSlow);
        }
    }

    private void Leave(Share share)
    {
        lock (_gate)
            _shares.Remove(share);
    }

    /// <summary>One replica's part.</summary>
    internal sealed class Share(NodeDisk disk, Func<bool> leads, Action<bool> tell) : IDisposable
    {
        public Func<bool> Leads { get; } = leads;

        public bool Told { get; private set; }

        public bool HasJudged { get; private set; }

        public bool JudgedSlow { get; private set; }

        public long JudgedAt { get; private set; }

        /// <summary>The replica has judged the disk by its own journal. One thread at a time.</summary>
        public void Judge(bool isSlow)
        {
            lock (disk._gate)
                (HasJudged, JudgedSlow, JudgedAt) = (true, isSlow, disk.Now);
            disk.Judged(this);
        }

        /// <summary>The replica has ended.</summary>
        public void Dispose() => disk.Leave(this);

        internal void TellLocked(bool isSlow)
        {
            if (Told == isSlow)
                return;
            Told = isSlow;
            tell(isSlow);
        }
    }

    private long Now => clock.GetTimestamp();
}
