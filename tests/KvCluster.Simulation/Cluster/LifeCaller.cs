using KvCluster.Storage.Encoding;
using KvCluster.Storage.Sessions;

namespace KvCluster.Simulation.Cluster;

/// <summary>
/// A caller of whole replicas that puts keys which expire, keys that a session owns, and keeps sessions alive for a while. It tries a request once, at the node that it takes for the
/// leader, so what became of it may remain unknown. At the end the committed records are compared with what it was told: nothing ends early, and each only once.
/// </summary>
internal sealed class LifeCaller(ClusterRun run)
{
    private const long RestUs = 40_000;
    private const int LifetimeMs = 500;
    private const int KeepsMax = 20;
    private const int TtlMsMax = 1_000;

    /// <summary>When each session was last known to be kept alive, in the run's time: when the KeepAlive was sent that was answered.</summary>
    private readonly Dictionary<UInt128, long> _kept = [];
    private (UInt128 Session, Etag Opened)? _session;
    private int _keeps;
    private int _keys;

    public void Start() => run.Time.After(run.Random.NextInt64(RestUs), Next);

    /// <summary>Compares what it was told with the committed records.</summary>
    public void Check(CommittedLog log)
    {
        foreach (var (session, sentUs) in log.SessionEnds)
        {
            if (!_kept.TryGetValue(session, out var keptUs))
                continue;
            // Clocks may run fast.
            var leastUs = LifetimeMs * 1_000L * (1_000 - (2 * run.Conditions.DriftPermille)) / 1_000;
            Violation.Unless(sentUs - keptUs >= leastUs, Rule.LivesEnd, $"a session ends {(sentUs - keptUs) / 1_000} ms after a KeepAlive that was answered, and lives for {LifetimeMs} ms");
        }
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
            Put(run.Random.Next(2) == 0 ? session.Opened : Etag.None);
        run.Time.After(run.Random.NextInt64(RestUs), Next);
    }

    private void Open()
    {
        var session = run.DrawSession();
        var sentUs = run.NowUs;
        run.Network.Call(run.LeaderHint, node => node.Requests.OpenSession(session, new SessionOwner(99, 1), LifetimeMs, result => run.Network.Reply(() =>
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
        var sentUs = run.NowUs;
        run.Network.Call(run.LeaderHint, node => node.Requests.KeepAlive(session, leftMs => run.Network.Reply(() =>
        {
            if (leftMs > 0)
                _kept[session] = Math.Max(_kept[session], sentUs);
            else if (leftMs == 0 && _session?.Session == session)
                _session = null;
        })));
    }

    private void Put(Etag owner)
    {
        var (key, ttlMs) = ($"life{run.Random.Next(8):D2}", owner == Etag.None || run.Random.Next(3) == 0 ? run.Random.Next(1, TtlMsMax) : 0);
        var value = ClusterData.Value(-++_keys - 1L);
        run.Network.Call(run.LeaderHint, node => node.Requests.PutWithLife(key, value, ttlMs, owner));
    }
}
