using KvCluster.Client;

namespace KvCluster.Tests.Client.Hostile;

/// <summary>
/// A watcher of all keys in a <see cref="HostileRun"/>, which at times gives up and goes on with a token, also with another client. It is told each change of
/// a shard behind the beginning of its watch once and in order, and the entries that a watch begins with are the state of that moment.
/// </summary>
internal sealed class HostileWatcher(HostileRun run)
{
    private const int GivesUpInOneOf = 60;
    private const int BeginsAnewInOneOf = 4;
    private const int RestMsMax = 200;

    private readonly List<Course> _courses = [];
    private readonly CancellationTokenSource _ended = new();

    public void Start() => run.Clock.After(run.Random.Next(500), () => _ = WatchAsync());

    /// <summary>Nothing is read any more. By now it must have been told everything.</summary>
    public void Stop()
    {
        run.Unless(_courses.Count > 0 && _courses[^1].HasAll(run.Model), static () => "the watch has not come to the last change");
        _ended.Cancel();
    }

    /// <summary>Compares what it was told with what has happened.</summary>
    public void Check()
    {
        foreach (var course in _courses)
        {
            run.Tally.Watched += course.Count;
            if (course.MistakeIn(run.Model) is { } mistake)
                run.Fail($"a watch {mistake}");
        }
    }

    private async Task WatchAsync()
    {
        if (_courses.Count == 0 || _courses[^1].Token is null || run.Random.Next(BeginsAnewInOneOf) == 0)
            _courses.Add(new Course(hasEntries: run.Random.Next(2) == 0));
        var course = _courses[^1];
        var client = run.Client;
        try
        {
            await foreach (var message in client.WatchAsync(new KvWatch { After = course.Token, Initial = course.HasEntries }, _ended.Token))
            {
                course.Take(message, run.Model);
                if (!run.IsOver && run.Random.Next(GivesUpInOneOf) == 0)
                    break;
            }
        }
        catch (OperationCanceledException) when (_ended.IsCancellationRequested)
        {
            return;
        }
        catch (Exception failure)
        {
            if (failure is not KvUnavailableException && !(failure is ObjectDisposedException && run.IsClosed(client)))
                run.Fail($"the watch ended with {failure}");
        }
        run.Clock.After(run.Random.Next(RestMsMax), () => _ = WatchAsync());
    }

    /// <summary>What was told without a gap, from the beginning of a watch over all that go on with its tokens.</summary>
    private sealed class Course(bool hasEntries)
    {
        private readonly SortedDictionary<string, (Etag Etag, string Value)> _view = new(StringComparer.Ordinal);
        private readonly List<KeyChange> _told = [];
        private readonly Dictionary<uint, Etag> _reached = [];
        private Dictionary<uint, Etag>? _starts;
        private SortedDictionary<string, (Etag Etag, string Value)>? _begun;
        private bool _isComplete = !hasEntries;

        public bool HasEntries => hasEntries;

        /// <summary>From where the watch can go on; null: it begins anew.</summary>
        public string? Token { get; private set; }

        /// <summary>How many changes it was told.</summary>
        public int Count => _told.Count;

        public void Take(KvWatchMessage message, HostileModel model)
        {
            if (message.Forget is { } range)
                Forget(new TextRange(range.Start.ToUtf8String(), range.End.ToUtf8String(), "", ""));
            foreach (var happened in message.Events)
            {
                var (key, value) = (happened.Key.ToUtf8String(), happened.Kind == KvEventKind.Put ? happened.Value.ToUtf8String() : null);
                if (_isComplete)
                    _told.Add(new KeyChange(model.RouteOf(key).Shard, key, happened.Etag, value));
                else if (value is null)
                    _view.Remove(key);
                else
                    _view[key] = (happened.Etag, value);
            }
            if (_starts is not null && message.Position.Etag != Etag.None)
                _reached[message.Position.Shard] = message.Position.Etag;
            if (message.IsInitialComplete)
                (_isComplete, _begun) = (true, new SortedDictionary<string, (Etag Etag, string Value)>(_view, StringComparer.Ordinal));
            // Told at once for all shards, when each has begun.
            if (_starts is null && message.Positions is { } positions)
                _starts = positions.ToDictionary(static position => position.Key, static position => position.Value.Etag.ToEtag());
            Token = message.Token ?? Token;
        }

        public bool HasAll(HostileModel model) => _starts is { } starts && starts.Keys.All(shard =>
            model.Changes.LastOrDefault(change => change.Shard == shard).Etag <= EndOf(shard));

        /// <summary>What is wrong with what it was told; null: nothing.</summary>
        public string? MistakeIn(HostileModel model)
        {
            if (_starts is not { } starts || !_isComplete)
                return null;
            if (_begun is not null)
            {
                var begun = new SortedDictionary<string, (Etag Etag, string Value)>(StringComparer.Ordinal);
                foreach (var change in model.Changes.Where(change => change.Etag <= starts[change.Shard]))
                {
                    if (change.Value is null)
                        begun.Remove(change.Key);
                    else
                        begun[change.Key] = (change.Etag, change.Value);
                }
                if (!begun.SequenceEqual(_begun))
                    return $"began with {string.Join(' ', _begun)}, and there were {string.Join(' ', begun)}";
            }
            foreach (var (shard, start) in starts)
            {
                var told = _told.Where(change => change.Shard == shard).ToList();
                // Without entries, one shard may tell changes before another one has begun. Where it began itself is only known by the first of them.
                var from = start;
                from = told.Count > 0 && told[0].Etag <= start ? told[0].Etag : ++from;
                var happened = model.Changes.Where(change => change.Shard == shard && change.Etag >= from && change.Etag <= EndOf(shard));
                if (!told.SequenceEqual(happened))
                    return $"of shard {shard} was told {string.Join(' ', told)}, and there happened {string.Join(' ', happened)}";
            }
            return null;
        }

        private void Forget(TextRange range)
        {
            foreach (var key in _view.Keys.Where(range.Has).ToList())
                _view.Remove(key);
        }

        private Etag EndOf(uint shard) => _reached.TryGetValue(shard, out var reached) ? reached : _starts![shard];
    }
}
