using System.Text;
using KvCluster.Client;

namespace KvCluster.Simulation.Cluster.Routing;

/// <summary>
/// A reader of the real library's watches over several shards, which gives a watch up again and again and goes on with its token, also slowly. Some of its
/// watches begin with the entries that there are. Of the shard under test, what it was told is compared with the committed records: every change once and in
/// order, with each position exactly the changes up to it, and the entries, with the changes that were told beside them, are the committed state of every key
/// when they are complete. It draws from a random sequence of its own.
/// </summary>
internal sealed class RoutedWatch(ClusterRun run, KvClient client, int seed)
{
    private const int GivesUpInOneOf = 30;
    private const int RestsInOneOf = 20;
    private const long RestUs = 100_000;
    private const int BeginsAnewInOneOf = 6;

    // The shard under test, and those of the first two nodes.
    private static readonly ReadOnlyMemory<byte> End = "n3/"u8.ToArray();

    private readonly Random _random = new(seed);
    private readonly List<Course> _courses = [];
    private readonly CancellationTokenSource _ended = new();
    private readonly int _thread = Environment.CurrentManagedThreadId;

    /// <summary>Events that it was given.</summary>
    public long Events => _courses.Sum(static course => (long)course.Seen.Count);

    public void Start() => run.Time.After(_random.NextInt64(RestUs), () => _ = RunAsync());

    /// <summary>Nothing is read any more.</summary>
    public void Stop() => _ended.Cancel();

    /// <summary>Compares what it was told with the committed records.</summary>
    public void Check(CommittedLog log)
    {
        foreach (var course in _courses)
            course.Check(log);
    }

    private async Task RunAsync()
    {
        try
        {
            while (!_ended.IsCancellationRequested)
            {
                await WatchAsync().ConfigureAwait(false);
                await RestAsync().ConfigureAwait(false);
            }
        }
        catch (Exception failure)
        {
            // At the end of the run nobody looks at it any more.
            run.Throw(failure);
        }
    }

    // One watch, until it is given up or cannot go on.
    private async Task WatchAsync()
    {
        if (_courses.Count == 0 || _courses[^1].Token is null || _random.Next(BeginsAnewInOneOf) == 0)
            _courses.Add(new Course(hasEntries: _random.Next(2) == 0));
        var course = _courses[^1];
        var watch = new KvWatch { End = End, After = course.Token, Initial = course.HasEntries, WithSets = true, WithPrevious = _random.Next(2) == 0 };
        try
        {
            await foreach (var message in client.WatchAsync(watch, _ended.Token).ConfigureAwait(false))
            {
                Violation.Unless(Environment.CurrentManagedThreadId == _thread, Rule.Contract, "a watch goes on on another thread");
                course.Take(message);
                if (_random.Next(GivesUpInOneOf) == 0)
                    return;
                if (_random.Next(RestsInOneOf) == 0)
                    await RestAsync().ConfigureAwait(false);
            }
        }
        catch (KvUnavailableException unavailable)
        {
            run.Trace($"a watch fails: {unavailable.Message}");
        }
        catch (KvCompactedException compacted)
        {
            run.Trace($"a watch cannot go on: {compacted.Message}");
            course.Token = null;
        }
    }

    private Task RestAsync()
    {
        var rest = new TaskCompletionSource();
        run.Time.After(1 + _random.NextInt64(RestUs), rest.SetResult);
        return rest.Task;
    }

    /// <summary>What was told without a gap, from the beginning of a watch over all that go on with its tokens.</summary>
    private sealed class Course(bool hasEntries)
    {
        private readonly WatchedView _view = new();
        private readonly List<(Etag Position, int Count)> _marks = [];
        private WatchedView? _begun;
        private Etag? _start;
        private bool _isComplete = !hasEntries;

        public bool HasEntries => hasEntries;

        /// <summary>From where the watch can go on; null: it begins anew.</summary>
        public string? Token { get; set; }

        /// <summary>Changes of the shard under test behind the beginning.</summary>
        public List<WatchedChange> Seen { get; } = [];

        public void Take(KvWatchMessage message)
        {
            if (message.Forget is { } range)
                _view.DeleteRange(Text(range.Start), Text(range.End));
            foreach (var happened in message.Events.Where(static happened => IsOfShard(Text(happened.Key))))
            {
                if (_isComplete)
                    Seen.Add(new WatchedChange(happened.Etag, Text(happened.Key)));
                else
                    Apply(happened);
            }
            var isOfShard = message.Position.Shard == 0 && message.Position.Etag != Etag.None;
            if (_start is not null && isOfShard)
                Reach(message.Position.Etag);
            if (message.IsInitialComplete)
                (_isComplete, _begun) = (true, _view.Copy());
            // Told at once for all shards, when each has begun.
            if (_start is null && message.Positions is { } positions)
                _start = positions[0].Etag.ToEtag();
            Token = message.Token ?? (Token is null ? null : throw new Violation(Rule.Contract, "a watch that goes on after a token tells none"));
            Violation.Unless(Token is null || (_isComplete && _start is not null), Rule.Contract, "a watch has a token before it has begun");
        }

        public void Check(CommittedLog log)
        {
            if (_start is not { } start || !_isComplete)
                return;
            _begun?.Check(log, start, IsOfShard, "a watch of the library");
            var end = _marks.Count == 0 ? start : _marks[^1].Position;
            var expected = log.Events.Where(one => one.Etag > start && one.Etag <= end && IsOfShard(one.Key)).ToList();
            for (var index = 0; index < Math.Max(expected.Count, Seen.Count); index++)
            {
                var (committed, seen) = (index < expected.Count ? expected[index] : default, index < Seen.Count ? Seen[index] : default);
                Violation.Unless(committed == seen, Rule.CommittedStays, $"a watch of the library from {start} to {end} was given {seen.Key} {seen.Etag} where "
                    + $"{committed.Key} {committed.Etag} is committed");
            }
            foreach (var (position, count) in _marks)
            {
                var upTo = expected.Count(one => one.Etag <= position);
                Violation.Unless(upTo == count, Rule.CommittedStays, $"a watch of the library from {start} was told the position {position} after {count} "
                    + $"events, and there are {upTo} up to it");
            }
        }

        private void Reach(Etag position)
        {
            var last = _marks.Count == 0 ? _start!.Value : _marks[^1].Position;
            Violation.Unless(position >= last, Rule.EtagsRise, $"the position of a watch of the library goes back from {last} to {position}");
            _marks.Add((position, Seen.Count));
        }

        private void Apply(KvEvent happened)
        {
            var key = Text(happened.Key);
            if (happened.Kind == KvEventKind.Put)
                _view.Put(key, happened.Etag);
            else if (happened.Kind == KvEventKind.Delete)
                _view.Delete(key);
            else if (happened.Kind == KvEventKind.DeleteRange)
                _view.DeleteRange(key, Text(happened.RangeEnd));
        }

        // By its record it ends there. Some callers, which find it by themselves, have keys beyond.
        private static bool IsOfShard(string key) => string.CompareOrdinal(key, "n") < 0;

        private static string Text(ReadOnlyMemory<byte> bytes) => Encoding.ASCII.GetString(bytes.Span);
    }
}
