using KvCluster.Storage.Encoding;
using KvCluster.Storage.Sessions;

namespace KvCluster.Simulation.Cluster;

/// <summary>
/// A caller of whole replicas that puts keys which expire, keys that a session owns, and keeps sessions alive for a while. It tries a request once, at the node
/// that it takes for the leader, so what became of it may remain unknown. At the end the committed records are compared with what it was told, by the run's
/// time and not by any clock of the nodes: nothing ends early, each only once, what is due ends soon while somebody leads, and in the end everything has ended.
/// </summary>
internal sealed class LifeCaller(ClusterRun run)
{
    /// <summary>How long after the run everything has ended, if a leader serves.</summary>
    public const long SettleUs = 3_000_000;

    private const long RestUs = 40_000;
    private const int LifetimeMs = 500;
    private const int KeepsMax = 20;
    private const int TtlMsMax = 1_000;

    /// <summary>How late an end may be beside drift, the time without a leader, and the time that disks take.</summary>
    private const int LateMsMax = 250;

    /// <summary>How often pages are read before an end: of the index of expiries, of what they change, and of what a request before them changes.</summary>
    private const int ReadsAhead = 3;

    /// <summary>What a new leader that was started anew may have missed of the time: its records have it once a second.</summary>
    private const int TimeRecordMs = 1_300;

    /// <summary>How often to look whether somebody leads.</summary>
    private const long LookUs = 5_000;

    /// <summary>When each session was last known to be kept alive, in the run's time: when the KeepAlive was sent that was answered.</summary>
    private readonly Dictionary<UInt128, long> _kept = [];

    /// <summary>When each value was sent, and how long its key lives. By the number in the value.</summary>
    private readonly Dictionary<long, (long SentUs, int TtlMs)> _puts = [];

    /// <summary>The run's time at each look, and the time until then in which nobody could end anything.</summary>
    private readonly List<(long AtUs, long UnledUs)> _looks = [(0, 0)];
    private (UInt128 Session, Etag Opened)? _session;
    private long _skippedUs;
    private int _keeps;
    private int _keys;

    public void Start()
    {
        run.Time.After(run.Random.NextInt64(RestUs), Next);
        run.Time.After(LookUs, Look);
    }

    /// <summary>Compares what it was told with the committed records.</summary>
    public void Check(CommittedLog log)
    {
        foreach (var (session, sentUs) in log.SessionEnds)
        {
            if (_kept.TryGetValue(session, out var keptUs))
                Violation.Unless(sentUs - keptUs >= LifetimeMs * 1_000L, Rule.LivesEnd, $"a session ends {(sentUs - keptUs) / 1_000} ms after a KeepAlive that "
                    + $"was answered, and lives for {LifetimeMs} ms");
        }
        foreach (var (value, put, putSentUs, epoch, sentUs) in log.Expiries)
        {
            var (putUs, ttlMs) = _puts[value];
            var livedUs = sentUs - putUs;
            Violation.Unless(livedUs >= ttlMs * 1_000L, Rule.LivesEnd, $"a key ends {livedUs / 1_000} ms after it was put for {ttlMs} ms");
            // A clock that is slow, and a leader that was told by one.
            var driftUs = ttlMs * 1_000L * 3 * run.Conditions.DriftPermille / 1_000;
            var mostUs = (ttlMs * 1_000L) + driftUs + (LateMsMax * 1_000)
                + (ReadsAhead * run.Nodes[0].Disk.PrefetchUs) + UnledUs(putSentUs, sentUs) + ((long)(epoch - put.Epoch) * TimeRecordMs * 1_000);
            Violation.Unless(sentUs - putSentUs <= mostUs, Rule.LivesEnd, $"a key ends {(sentUs - putSentUs) / 1_000} ms after it was put for {ttlMs} ms by "
                + $"{put}, at most {mostUs / 1_000} ms after it");
        }
        Violation.Unless(log.Living.Count == 0, Rule.LivesEnd, $"{string.Join(", ", log.Living)} live on");
        Violation.Unless(log.OpenSessions == 0, Rule.LivesEnd, $"{log.OpenSessions} sessions with a lifetime live on");
    }

    private void Look()
    {
        var (lastUs, unledUs) = _looks[^1];
        // Nobody leads while nothing runs, and a record is not sent while those before it are not written.
        _looks.Add((run.RealUs, unledUs + (run.LeadsPromptly ? run.SkippedUs - _skippedUs : run.RealUs - lastUs)));
        _skippedUs = run.SkippedUs;
        run.Time.After(LookUs, Look);
    }

    // The look before the first and the one after the last moment, so it is rather too long.
    private long UnledUs(long fromUs, long toUs)
    {
        var first = _looks.FindLastIndex(look => look.AtUs <= fromUs);
        var last = _looks.FindIndex(look => look.AtUs >= toUs);
        return (last < 0 ? _looks[^1] : _looks[last]).UnledUs - _looks[first].UnledUs + (2 * LookUs);
    }

    private void Next()
    {
        if (run.Healed)
            return;
        if (_session is not { } session)
            Open();
        else if (run.Random.Next(3) != 0)
            Keep(session.Session);
        else
            Put(run.Random.Next(2) == 0 ? session.Session : 0);
        run.Time.After(run.Random.NextInt64(RestUs), Next);
    }

    private void Open()
    {
        var session = run.DrawSession();
        var sentUs = run.RealUs;
        run.Network.Call(run.LeaderHint, node => node.Requests.OpenSession(session, new QuotaOwner(99, 1), LifetimeMs, result => run.Network.Reply(() =>
        {
            if (result.Outcome != WriteOutcome.Applied)
                return;
            _kept[session] = sentUs;
            (_session, _keeps) = ((session, result.Etag), run.Random.Next(KeepsMax));
        })));
    }

    private void Keep(UInt128 session)
    {
        // It ends if nobody keeps it alive any more.
        if (_keeps-- <= 0)
        {
            _session = null;
            return;
        }
        var sentUs = run.RealUs;
        run.Network.Call(run.LeaderHint, node => node.Requests.KeepAlive(session, leftMs => run.Network.Reply(() =>
        {
            if (leftMs > 0)
                _kept[session] = Math.Max(_kept[session], sentUs);
            else if (leftMs == 0 && _session?.Session == session)
                _session = null;
        })));
    }

    private void Put(UInt128 owner)
    {
        var (key, ttlMs) = ($"life{run.Random.Next(8):D2}", owner == 0 || run.Random.Next(3) == 0 ? run.Random.Next(1, TtlMsMax) : 0);
        var value = -++_keys - 1L;
        _puts[value] = (run.RealUs, ttlMs);
        run.Network.Call(run.LeaderHint, node => node.Requests.PutWithLife(key, ClusterData.Value(value), ttlMs, owner, static _ => { }));
    }
}
