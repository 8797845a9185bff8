using System.Text;
using KvCluster.Disk;
using KvCluster.Node.Watching;
using KvCluster.Storage.Context;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Sessions;
using KvCluster.Tests.Storage.Store;
using KvCluster.V1;
using WriteRequest = KvCluster.Storage.Transactions.WriteRequest;

namespace KvCluster.Tests.Node.Watching;

/// <summary>A real store on a simulated disk with the hub of its watchers, all on the test's thread, and a model of every event that its writes have.</summary>
internal sealed class WatchBench : IDisposable
{
    private readonly StepExecutor _pool = new();
    private readonly Dictionary<string, (Etag Etag, string Value)> _keys = [];
    private readonly WatchLimits _limits;

    public WatchBench(int seed = 1, StoreOptions? options = null, long keptBytes = 16 << 10, long journalBytes = 64 << 10)
    {
        Store = new StoreBench(seed: seed, options: options);
        _limits = new WatchLimits(journalBytes, () => keptBytes);
        Store.Open();
        Hub = NewHub();
    }

    public StoreBench Store { get; }

    public WatchHub Hub { get; private set; }

    /// <summary>What the hub has failed with.</summary>
    public Exception? Failure { get; private set; }

    /// <summary>Every event, in order.</summary>
    public List<ModelEvent> Events { get; } = [];

    public Etag Committed => Store.Store.Tail.Committed;

    /// <summary>Restarts the store as after the death of the process. Watchers have to join anew.</summary>
    public void Reopen()
    {
        Hub.Dispose();
        _pool.Clear();
        Store.Close();
        Store.Open();
        Hub = NewHub();
    }

    /// <summary>Writes operations as one request.</summary>
    public void Write(params ModelOperation[] operations)
    {
        var result = Store.Write(request =>
        {
            foreach (var operation in operations)
                operation.AddTo(request);
        });
        Assert.Equal(WriteOutcome.Applied, result.Outcome);
        for (var index = 0; index < operations.Length; index++)
        {
            var etag = new Etag(result.Etag.Epoch, result.Etag.Change - (ulong)(operations.Length - 1 - index));
            Events.Add(operations[index].Apply(etag, result.Etag, _keys));
        }
        Hub.Wake();
    }

    public void Put(string key, string value) => Write(new ModelOperation(EventKind.Put, key, value));

    /// <summary>Runs everything that the store and the hub have to do.</summary>
    public void Run()
    {
        while (Store.Step() || _pool.RunOne())
        {
        }
        Assert.Null(Failure);
    }

    /// <summary>Runs one step of the hub, if there is one.</summary>
    public void Step()
    {
        if (!_pool.RunOne())
            Store.Step();
        Assert.Null(Failure);
    }

    /// <summary>Lets a second pass, after which each watcher is told where it is.</summary>
    public void LetTimePass()
    {
        Store.Time.Advance(TimeSpan.FromSeconds(1));
        Hub.Look();
    }

    /// <summary>The events of a range after a position and up to another.</summary>
    public List<ModelEvent> Expected(WatchedRange range, Etag after, Etag until) =>
        [.. Events.Where(one => one.Etag > after && one.Etag <= until && one.IsIn(range))];

    public void Dispose()
    {
        Hub.Dispose();
        Run();
        Store.Dispose();
    }

    private WatchHub NewHub() => new(() => Store.Store, _limits, Store.Time, failure => Failure = failure, _pool);
}

/// <summary>An operation of a write.</summary>
/// <param name="Kind">Put, delete or delete of a range.</param>
/// <param name="Key">The key, or the first one.</param>
/// <param name="Value">The value, or the end of the range.</param>
internal sealed record ModelOperation(EventKind Kind, string Key, string Value = "")
{
    public void AddTo(WriteRequest request)
    {
        if (Kind == EventKind.Put)
            request.Put(StoreBench.Text(Key), StoreBench.Text(Value));
        else if (Kind == EventKind.Delete)
            request.Delete(StoreBench.Text(Key));
        else
            request.DeleteRange(StoreBench.Text(Key), StoreBench.Text(Value));
    }

    /// <summary>Makes the change in a model of the keys.</summary>
    /// <param name="etag">Its etag.</param>
    /// <param name="write">The etag of the whole write.</param>
    /// <param name="keys">The keys.</param>
    public ModelEvent Apply(Etag etag, Etag write, Dictionary<string, (Etag Etag, string Value)> keys)
    {
        var (previousEtag, previousValue) = keys.GetValueOrDefault(Key);
        if (Kind == EventKind.Put)
            keys[Key] = (etag, Value);
        else if (Kind == EventKind.Delete)
            keys.Remove(Key);
        else
            keys.Keys.Where(key => string.CompareOrdinal(key, Key) >= 0 && string.CompareOrdinal(key, Value) < 0).ToList().ForEach(key => keys.Remove(key));
        return new ModelEvent(Kind, Key, Value, etag, write, previousEtag, previousValue ?? "");
    }
}

/// <summary>An event as watchers must see it.</summary>
internal sealed record ModelEvent(EventKind Kind, string Key, string Value, Etag Etag, Etag Write, Etag PreviousEtag, string PreviousValue)
{
    public bool IsIn(WatchedRange range) =>
        Kind == EventKind.DeleteRange ? range.Meets(StoreBench.Text(Key), StoreBench.Text(Value)) : range.Contains(StoreBench.Text(Key));

    public override string ToString() => $"{Etag.Change} {Kind} {Key} {Value}";
}

/// <summary>The sender of one watcher, which checks all that it is given.</summary>
internal sealed class TestWatcher(WatchBench bench, WatchedRange range, bool withPrevious = false)
{
    private readonly List<WatchRun> _runs = [];
    private Watcher? _watcher;
    private bool _isReading;
    private Etag _start;

    /// <summary>The position of the last message.</summary>
    public Etag Position { get; private set; }

    /// <summary>How many messages without events it got.</summary>
    public int Bookmarks { get; private set; }

    /// <summary>How many previous values were known.</summary>
    public int PreviousKnown { get; private set; }

    /// <summary>How often it read the journal by itself.</summary>
    public int CatchUps { get; private set; }

    /// <summary>Why it cannot go on, with the oldest position that would do.</summary>
    public (TailState State, Etag Oldest)? Ended { get; private set; }

    /// <summary>The events since it began.</summary>
    public List<ModelEvent> Seen { get; } = [];

    public Watcher Watcher => _watcher!;

    /// <summary>Begins, or begins anew, at the newest position or after one.</summary>
    public void Begin(Etag? after = null)
    {
        Leave();
        _watcher = bench.Hub.Join(range, after, withSets: true, withPrevious);
        (_start, Position, Ended) = (_watcher.Taken, _watcher.Taken, null);
        Seen.Clear();
    }

    /// <summary>Goes on after what it has, as after a broken stream.</summary>
    public void Resume()
    {
        Leave();
        _watcher = bench.Hub.Join(range, Position, withSets: true, withPrevious);
    }

    public void Leave()
    {
        if (_watcher is not null && _watcher.Hub == bench.Hub)
            bench.Hub.Leave(_watcher);
        (_watcher, _isReading) = (null, false);
    }

    /// <summary>Takes the next step of its sender.</summary>
    public void Step(long bytesMax = 1 << 10)
    {
        if (_isReading || Ended is not null)
            return;
        var watcher = _watcher!;
        switch (bench.Hub.Next(watcher, bytesMax, _runs, out var position))
        {
            case WatchStep.Send:
                Assert.True(bench.Hub.TryTake(watcher, _runs, position));
                Bookmarks += _runs.Count == 0 ? 1 : 0;
                Receive(_runs, position);
                break;
            case WatchStep.CatchUp:
                _isReading = true;
                CatchUps++;
                bench.Hub.CatchUp(watcher, page =>
                {
                    if (_watcher == watcher)
                        TakePage(page);
                });
                break;
            case WatchStep.Ended:
                Assert.Fail("The watcher was ended.");
                break;
            default:
                break;
        }
    }

    private void TakePage(CaughtUp page)
    {
        _isReading = false;
        if (page.State == TailState.Read)
            Receive(page.Runs, page.Position);
        else if (page.State != TailState.Stopped)
            Ended = (page.State, page.Oldest);
    }

    private void Receive(List<WatchRun> runs, Etag position)
    {
        Assert.True(position >= Position, $"The position went back from {Position} to {position}.");
        foreach (var run in runs)
        {
            foreach (var happened in run.Batch.Events.AsSpan(run.First, run.Count))
                Seen.Add(ToModel(happened));
        }
        Position = position;
        // Ordered, unique, reliable and atomic at once: with each position exactly the events up to it have come, and no position is within a write.
        Assert.True(position <= bench.Committed, $"The position {position} is not committed.");
        var expected = bench.Expected(range, _start, position).Select(static one => one.ToString()).ToList();
        Assert.Equal(expected, Seen.Select(static one => one.ToString()));
        Assert.DoesNotContain(bench.Events, one => one.Write > position && one.Etag <= position);
    }

    private ModelEvent ToModel(in WatchEvent happened)
    {
        var etag = happened.Etag;
        Assert.Equal(EventReason.User, happened.Reason);
        var value = happened.Kind == EventKind.DeleteRange ? happened.End : happened.Value;
        var made = new ModelEvent(happened.Kind, TextOf(happened.Key), TextOf(value), etag, default, happened.PreviousEtag, TextOf(happened.PreviousValue));
        if (withPrevious && happened.IsPreviousKnown)
        {
            PreviousKnown++;
            var expected = bench.Events.Find(one => one.Etag == etag)!;
            Assert.Equal((expected.PreviousEtag, expected.PreviousValue), (made.PreviousEtag, made.PreviousValue));
        }
        return made;
    }

    private static string TextOf(ReadOnlyMemory<byte> bytes) => Encoding.UTF8.GetString(bytes.Span);
}
