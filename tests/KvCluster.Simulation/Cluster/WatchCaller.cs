using System.Text;
using KvCluster.Node.Shards;
using KvCluster.Node.Watching;
using KvCluster.Storage.Journal;

namespace KvCluster.Simulation.Cluster;

/// <summary>
/// A caller that watches the shard at one replica after the other, each time after the position that it has come to. At the end what it was given is compared with the
/// committed records: every change once and in order, and with each position exactly the changes up to it. It draws from a random sequence of its own.
/// </summary>
internal sealed class WatchCaller(ClusterRun run, int seed)
{
    private const long RestUs = 3_000;
    private const int LeavesInOneOf = 200;
    private const int LooksInOneOf = 10;
    private const int BytesMax = 4 << 10;

    private static readonly WatchLimits Limits = new(1 << 20, static () => 16 << 10);

    private readonly Random _random = new(seed);
    private readonly List<Chain> _chains = [];
    private readonly List<WatchRun> _runs = [];
    private (ClusterNode Node, ShardReplica Replica, WatchHub Hub, Watcher Watcher)? _at;
    private bool _isReading;

    /// <summary>Events that it was given.</summary>
    public long Events => _chains.Sum(static chain => (long)chain.Seen.Count);

    public void Start() => run.Time.After(_random.NextInt64(RestUs), Next);

    /// <summary>Compares what it was given with the committed records.</summary>
    public void Check(CommittedLog log)
    {
        foreach (var chain in _chains)
        {
            var expected = log.Events.Where(one => one.Etag > chain.Start && one.Etag <= chain.Position).ToList();
            for (var index = 0; index < Math.Max(expected.Count, chain.Seen.Count); index++)
            {
                var (committed, seen) = (index < expected.Count ? expected[index] : default, index < chain.Seen.Count ? chain.Seen[index] : default);
                Violation.Unless(committed == seen, Rule.CommittedStays, $"a watch from {chain.Start} to {chain.Position} was given {seen.Key} {seen.Etag} where {committed.Key} {committed.Etag} is committed");
            }
            foreach (var (position, count) in chain.Marks)
            {
                var upTo = expected.Count(one => one.Etag <= position);
                Violation.Unless(upTo == count, Rule.CommittedStays, $"a watch from {chain.Start} was told the position {position} after {count} events, and there are {upTo} up to it");
            }
        }
    }

    private void Next()
    {
        if (_at is var (node, replica, hub, _) && (node.Replica != replica || replica.Failure is not null || _random.Next(LeavesInOneOf) == 0))
            Leave(hub);
        if (_at is null)
            Begin();
        else if (!_isReading)
            Step(_at.Value.Hub, _at.Value.Watcher);
        run.Time.After(1 + _random.NextInt64(RestUs), Next);
    }

    private void Begin()
    {
        var node = run.Nodes[_random.Next(run.Nodes.Count)];
        if (node.Replica is not { Failure: null } replica || node.Pool is not { } pool)
            return;
        var hub = new WatchHub(() => replica.Store, Limits, node.Clock, run.Throw, pool);
        var watcher = hub.Join(new WatchedRange(default, default), _chains.Count == 0 || _chains[^1].IsEnded ? null : _chains[^1].Position, withSets: true, withPrevious: _random.Next(2) == 0);
        if (_chains.Count == 0 || _chains[^1].IsEnded)
            _chains.Add(new Chain(watcher.Taken));
        replica.Reads.Follow(hasEnded =>
        {
            if (hasEnded)
                hub.EndAll(WatchEnd.Stopped);
            else
                hub.Applied();
        });
        (_at, _isReading) = ((node, replica, hub, watcher), false);
    }

    private void Leave(WatchHub hub)
    {
        hub.Leave(_at!.Value.Watcher);
        hub.Dispose();
        _at!.Value.Replica.Reads.Follow(null);
        (_at, _isReading) = (null, false);
    }

    private void Step(WatchHub hub, Watcher watcher)
    {
        if (_random.Next(LooksInOneOf) == 0)
            hub.Look();
        switch (hub.Next(watcher, BytesMax, _runs, out var position))
        {
            case WatchStep.Send:
                _chains[^1].Take(_runs, position);
                break;
            case WatchStep.CatchUp:
                _isReading = true;
                hub.CatchUp(watcher, page =>
                {
                    if (_at?.Watcher == watcher)
                        Take(hub, page);
                });
                break;
            case WatchStep.Ended:
                Leave(hub);
                break;
            default:
                break;
        }
    }

    private void Take(WatchHub hub, CaughtUp page)
    {
        _isReading = false;
        var chain = _chains[^1];
        switch (page.State)
        {
            case TailState.Read:
                chain.Take(page.Runs, page.Position);
                break;
            case TailState.Compacted:
                Violation.Unless(page.Oldest > chain.Position, Rule.GoesOn, $"a watch after {chain.Position} is refused, although the journal begins after {page.Oldest}");
                chain.IsEnded = true;
                Leave(hub);
                break;
            case TailState.Foreign:
                throw new Violation(Rule.CommittedStays, $"a watch was given the position {chain.Position}, which is not in the history");
            default:
                // The replica lags or stops; another one goes on.
                Leave(hub);
                break;
        }
    }

    /// <summary>What was given without an interruption.</summary>
    private sealed class Chain
    {
        public Chain(Etag start) => (Start, Position) = (start, start);

        public Etag Start { get; }

        public Etag Position { get; private set; }

        /// <summary>The journals do not have what follows.</summary>
        public bool IsEnded { get; set; }

        public List<WatchedChange> Seen { get; } = [];

        /// <summary>Each position that was told, with the number of events before.</summary>
        public List<(Etag Position, int Count)> Marks { get; } = [];

        public void Take(List<WatchRun> runs, Etag position)
        {
            Violation.Unless(position >= Position, Rule.EtagsRise, $"the position of a watch goes back from {Position} to {position}");
            foreach (var run in runs)
            {
                foreach (var happened in run.Batch.Events.AsSpan(run.First, run.Count))
                    Seen.Add(new WatchedChange(happened.Etag, Encoding.ASCII.GetString(happened.Key.Span)));
            }
            Position = position;
            Marks.Add((position, Seen.Count));
        }
    }
}

/// <summary>A change that watchers see.</summary>
internal readonly record struct WatchedChange(Etag Etag, string Key);
