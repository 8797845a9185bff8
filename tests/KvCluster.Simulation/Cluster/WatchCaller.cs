using System.Text;
using Google.Protobuf;
using KvCluster.Node.Api.Watches;
using KvCluster.Node.Shards;
using KvCluster.Node.Watching;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Pages;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Simulation.Cluster;

/// <summary>
/// A caller that watches the shard at one replica after the other, each time after the position that it has come to. At the end what it was given is compared
/// with the committed records: every change once and in order, and with each position exactly the changes up to it. Some of its watches begin with the entries
/// that there are, a few at a time, in one snapshot after the other and at one replica after the other: what a reader then has is compared with the committed
/// state of every key, when the entries are complete and at the end. It draws from a random sequence of its own.
/// </summary>
internal sealed class WatchCaller(ClusterRun run, int seed)
{
    private const long RestUs = 3_000;
    private const int LeavesInOneOf = 200;
    private const int LooksInOneOf = 10;
    private const int BytesMax = 4 << 10;
    private const int EntryBytesMax = 256;
    private const int SnapshotsEndInOneOf = 6;
    private const int LeavesBeginningInOneOf = 12;

    private static readonly WatchedRange Everything = new(default, default);

    private static readonly WatchLimits Limits = new(1 << 20, static () => 16 << 10);

    private readonly Random _random = new(seed);
    private readonly List<Chain> _chains = [];
    private readonly List<WatchRun> _runs = [];
    private (ClusterNode Node, ShardReplica Replica, WatchHub Hub, Watcher Watcher)? _at;
    private readonly WatchQuery _entriesQuery = QueryOf(new WatchRequest { Initial = true, KeysOnly = true });
    private bool _isReading;

    /// <summary>The snapshot that entries are read in; null: the next one is opened when the keys sent are brought to its state.</summary>
    private ReadSnapshot? _snapshot;

    /// <summary>Events that it was given.</summary>
    public long Events => _chains.Sum(static chain => (long)chain.Seen.Count);

    /// <summary>Watches that began with entries and have all of them.</summary>
    public int Beginnings => _chains.Count(static chain => chain.Beginning is { IsComplete: true });

    public void Start() => run.Time.After(_random.NextInt64(RestUs), Next);

    /// <summary>Compares what it was given with the committed records.</summary>
    public void Check(CommittedLog log)
    {
        foreach (var chain in _chains.Where(static chain => chain.Beginning is not { IsComplete: false }))
        {
            chain.Beginning?.Check(log);
            var expected = log.Events.Where(one => one.Etag > chain.Start && one.Etag <= chain.Position).ToList();
            for (var index = 0; index < Math.Max(expected.Count, chain.Seen.Count); index++)
            {
                var (committed, seen) = (index < expected.Count ? expected[index] : default, index < chain.Seen.Count ? chain.Seen[index] : default);
                Violation.Unless(committed == seen, Rule.CommittedStays, $"a watch from {chain.Start} to {chain.Position} was given {seen.Key} {seen.Etag} "
                    + $"where {committed.Key} {committed.Etag} is committed");
            }
            foreach (var (position, count) in chain.Marks)
            {
                var upTo = expected.Count(one => one.Etag <= position);
                Violation.Unless(upTo == count, Rule.CommittedStays, $"a watch from {chain.Start} was told the position {position} after {count} events, and "
                    + $"there are {upTo} up to it");
            }
        }
    }

    private void Next()
    {
        if (_at is var (node, replica, hub, _)
            && (node.Replica != replica || replica.Failure is not null || _random.Next(IsBeginning ? LeavesBeginningInOneOf : LeavesInOneOf) == 0))
            Leave(hub);
        if (_at is null)
            Begin();
        else if (!_isReading && IsBeginning)
            StepBeginning(_at.Value.Replica, _at.Value.Hub, _at.Value.Watcher, _chains[^1].Beginning!);
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
        var isNew = _chains.Count == 0 || _chains[^1].IsEnded;
        var watcher = hub.Join(Everything, isNew ? null : _chains[^1].Position, withSets: true, withPrevious: _random.Next(2) == 0);
        if (isNew)
            _chains.Add(new Chain(watcher.Taken) { Beginning = _random.Next(2) == 0 ? new Beginning() : null });
        replica.Reads.Follow(hasEnded =>
        {
            if (hasEnded)
                hub.EndAll(WatchEnd.Stopped);
            else
                hub.Applied();
        });
        (_at, _isReading) = ((node, replica, hub, watcher), false);
    }

    private bool IsBeginning => _chains.Count > 0 && _chains[^1] is { IsEnded: false, Beginning.IsComplete: false };

    private static WatchQuery QueryOf(WatchRequest request)
    {
        Violation.Unless(WatchQuery.TryRead(request.ToByteArray(), out var query) is null, Rule.Contract, "a watch of everything is refused");
        return query;
    }

    private void EndSnapshot()
    {
        _snapshot?.Dispose();
        _snapshot = null;
    }

    /// <summary>As a node does: a few entries, in a newer snapshot when the one before has ended, after the changes of the keys sent.</summary>
    private void StepBeginning(ShardReplica replica, WatchHub hub, Watcher watcher, Beginning beginning)
    {
        if (hub.HasEnded(watcher))
        {
            Leave(hub);
            return;
        }
        if (_snapshot is not { } snapshot)
        {
            var opened = replica.Reads.OpenSnapshot();
            _snapshot = opened;
            if (beginning.Through.IsEmpty)
                hub.Skip(watcher, opened.Etag);
            else if (opened.Etag < _chains[^1].Position)
                Leave(hub);
            else
                BringTo(hub, watcher, opened.Etag, beginning);
            return;
        }
        using (var cursor = snapshot.Cursor(TreeId.Kv, beginning.Through.IsEmpty ? default : beginning.Behind, default))
        {
            var entries = new InitialEntries(cursor, _entriesQuery, beginning.Through);
            var message = MessageBytes.Rent();
            entries.Fill(message, EntryBytesMax);
            beginning.Apply(WatchResponse.Parser.ParseFrom(message.Written));
            message.Return();
            (beginning.Through, beginning.IsComplete) = (entries.Through, entries.AreComplete);
        }
        _chains[^1].Restart(snapshot.Etag);
        if (beginning.IsComplete)
            beginning.Completed(snapshot.Etag);
        if (beginning.IsComplete || _random.Next(SnapshotsEndInOneOf) == 0)
            EndSnapshot();
    }

    private void BringTo(WatchHub hub, Watcher watcher, Etag until, Beginning beginning)
    {
        _isReading = true;
        hub.CatchUp(watcher, page =>
        {
            if (_at?.Watcher != watcher)
                return;
            _isReading = false;
            switch (page.State)
            {
                case TailState.Read:
                    beginning.Apply(page.Runs);
                    _chains[^1].Restart(page.Position);
                    if (page.Position < until)
                        BringTo(hub, watcher, until, beginning);
                    break;
                case TailState.Compacted:
                    // Its reader forgets what it has.
                    _chains[^1].IsEnded = true;
                    Leave(hub);
                    break;
                case TailState.Foreign:
                    throw new Violation(
                        Rule.CommittedStays, $"a watch was given the position {_chains[^1].Position} in its beginning, which is not in the history");
                default:
                    Leave(hub);
                    break;
            }
        }, new SentBeginning(new WatchedRange(default, beginning.Behind), beginning.Behind, until));
    }

    private void Leave(WatchHub hub)
    {
        EndSnapshot();
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
                Violation.Unless(hub.TryTake(watcher, _runs, position), Rule.Contract, "what was just given to a watcher cannot be taken");
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
                Violation.Unless(
                    page.Oldest > chain.Position, Rule.GoesOn, $"a watch after {chain.Position} is refused, although the journal begins after {page.Oldest}");
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

    /// <summary>What a reader has of the entries that a watch begins with.</summary>
    private sealed class Beginning
    {
        private readonly WatchedView _view = new();
        private Etag _completedAt;

        /// <summary>The last key that was sent; empty: none was.</summary>
        public ReadOnlyMemory<byte> Through { get; set; }

        /// <summary>The least key behind it.</summary>
        public byte[] Behind => [.. Through.Span, 0];

        public bool IsComplete { get; set; }

        public void Apply(WatchResponse entries)
        {
            foreach (var entry in entries.Events)
                Violation.Unless(_view.TryAdd(entry.Key.ToStringUtf8(), new Etag(entry.Etag.Epoch, entry.Etag.Change)), Rule.CommittedStays, $"a watch was "
                    + $"given the entry {entry.Key.ToStringUtf8()} twice");
        }

        public void Apply(List<WatchRun> runs)
        {
            foreach (var run in runs)
            {
                foreach (var happened in run.Batch.Events.AsSpan(run.First, run.Count))
                    Apply(happened);
            }
        }

        public void Completed(Etag position) => _completedAt = position;

        /// <summary>Compares the state that the reader had when the entries were complete with the committed one.</summary>
        public void Check(CommittedLog log) => _view.Check(log, _completedAt, static _ => true, "a watch");

        private void Apply(in WatchEvent happened)
        {
            var key = Encoding.ASCII.GetString(happened.Key.Span);
            if (happened.Kind == EventKind.Put)
                _view.Put(key, happened.Etag);
            else if (happened.Kind == EventKind.Delete)
                _view.Delete(key);
            else if (happened.Kind == EventKind.DeleteRange)
                _view.DeleteRange(key, Encoding.ASCII.GetString(happened.End.Span));
        }
    }

    /// <summary>What was given without an interruption.</summary>
    private sealed class Chain
    {
        public Chain(Etag start) => (Start, Position) = (start, start);

        public Etag Start { get; private set; }

        /// <summary>The entries that it begins with; null: it begins with changes.</summary>
        public Beginning? Beginning { get; init; }

        /// <summary>The changes begin later, because entries came first.</summary>
        public void Restart(Etag position) => (Start, Position) = (position, position);

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
