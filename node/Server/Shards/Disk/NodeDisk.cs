// Combines what a node's replicas find out about the disk that they share. Each replica judges the disk while its shard is written. The others are informed
// here, so that quiescent shards leave a slow disk too and no leadership comes to it. Called by replicas on their writer threads; replicas are informed by a
// timer of the node's clock.
namespace KvCluster.Node.Shards.Disk;

/// <summary>The judgement of one node's disk, derived from those of its replicas.</summary>
/// <param name="clock">For the timer.</param>
internal sealed class NodeDisk(TimeProvider clock)
{
    /// <summary>How long a replica's judgement counts. If none is that recent, the last result is kept.</summary>
    private static readonly TimeSpan JudgedFor = TimeSpan.FromSeconds(30);

    /// <summary>
    /// Interval between replicas that are informed. An informed leader transfers, and coordinator and peers can easily handle fifty transfers a second.
    /// </summary>
    private static readonly TimeSpan Pace = TimeSpan.FromMilliseconds(20);

    /// <summary>Less than one in so many are few.</summary>
    private const int FewIn = 8;

    private readonly Lock _gate = new();
    private readonly List<Share> _shares = [];
    private readonly Queue<Share> _untold = new();
    private ITimer? _timer;
    private bool _isSlow;

    /// <summary>Registers a replica that uses the disk.</summary>
    /// <param name="leads">Whether it leads. Leaders are informed first.</param>
    /// <param name="tell">Receives whether the disk is slow, at once if it is. Called on any thread with the lock held. Must not block, nor judge
    /// the disk.</param>
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
            // Slow once half of them say so, and until few do, so that replicas that judge one after the other do not change the result each time. Of a
            // thousand there is always one whose last judgement was made in an unlucky moment.
            var isSlow = _isSlow ? slow > 0 && FewIn * slow >= young : young > 0 && 2 * slow >= young;
            if (isSlow != _isSlow)
                TurnLocked(isSlow);
            // A replica that judged the same itself is informed at once.
            if (_isSlow == by.JudgedSlow)
                by.TellLocked(_isSlow);
        }
    }

    private void TurnLocked(bool isSlow)
    {
        Invariant.CheckHeld(_gate);
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
            // Replicas that knew already do not use up an interval.
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
            // Called with the lock held. Otherwise a thread that lost its processor here could deliver an outdated result last.
            next.TellLocked(_isSlow);
        }
    }

    private void Leave(Share share)
    {
        lock (_gate)
            _shares.Remove(share);
    }

    /// <summary>One replica's registration.</summary>
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
            Invariant.CheckHeld(disk._gate);
            if (Told == isSlow)
                return;
            Told = isSlow;
            tell(isSlow);
        }
    }

    private long Now => clock.GetTimestamp();
}
