using KvCluster.Node.Runtime;
using KvCluster.Node.Shards.Disk;
using KvCluster.Node.Telemetry;
using KvCluster.ServiceDefaults.Exchanges;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.Files;
using KvCluster.Storage.Threads;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Hosting;

/// <summary>
/// What a node's replicas share: a fixed set of writer, journal and checkpoint threads, one that reads pages for the writers, one that reads the journal for
/// watchers, the timers, the node's disk and memory, and the pace of digests. Created and
/// disposed by <see cref="ShardHost"/>, after the last replica; used on any thread.
/// </summary>
internal sealed class ShardThreads : IAsyncDisposable
{
    /// <summary>
    /// Writers, and as many threads for checkpoints: enough for the disks of two cores. A shard's id binds it to one of each; its journal has a lane on each
    /// journal thread, of which there are as many as <see cref="StoreOptions.JournalWrites"/>.
    /// </summary>
    private const int Writers = 2;

    private readonly WorkThread[] _writers = Threads("writer", Writers);
    private readonly WorkThread[] _journals;

    /// <summary>For each writer, and for each journal thread, what the latter reports to the former.</summary>
    private readonly HeldPosts[][] _posts;

    /// <summary>For each writer, what it passes to the thread pool.</summary>
    private readonly HeldPosts[] _answers;

    /// <summary>For each writer, the journal threads that it wakes.</summary>
    private readonly HeldPosts[] _wakeUps;

    /// <summary>For each writer, what it does itself once a pass.</summary>
    private readonly HeldPosts[] _passEnds;
    private readonly WorkThread[] _checkpoints = Threads("checkpoint", Writers, WorkThread.BackgroundNice);
    private readonly WorkThread _prefetch = new("kv-prefetch", BootClock.Instance);
    private readonly WorkThread _tails = new("kv-tail", BootClock.Instance, WorkThread.BackgroundNice);
    private readonly SharedTimers _timers = new(BootClock.Instance);
    private readonly DigestPace _digestPace;
    private readonly MemoryAccount _memory;
    private readonly SharedDisk _sharedDisk;
    private readonly ILogger _log;

    public ShardThreads(StoreOptions options, MemoryAccount memory, NodeMetrics metrics, ILoggerFactory logs)
    {
        Options = options;
        _journals = Threads("journal", options.JournalWrites);
        List<HeldPosts>[] together = [.. _journals.Select(static _ => new List<HeldPosts>())];
        _posts = [.. _writers.Select(writer => (HeldPosts[])[.. _journals.Select((journal, at) => new HeldPosts(journal, writer.Post, together[at]))])];
        _answers = [.. _writers.Select(static writer => new HeldPosts(writer, PassToPool))];
        _wakeUps = [.. _writers.Select(static writer => new HeldPosts(writer, static wakeUps => wakeUps.Execute()))];
        _passEnds = [.. _writers.Select(static writer => new HeldPosts(writer, static done => done.Execute()))];
        _memory = memory;
        _log = logs.CreateLogger<ReplicaStore>();
        _digestPace = new DigestPace(options.DigestBytesPerSecond);
        _sharedDisk = new SharedDisk(_timers);
        Disk = new NodeDisk(_timers);
        Stalls = new StallWatch(_writers, metrics, logs.CreateLogger<StallWatch>());
        _timers.Late = Stalls.TimersWereLate;
    }

    /// <summary>The bounds of every replica's store.</summary>
    public StoreOptions Options { get; }

    /// <summary>The boot clock, with timers that fire on a thread of their own.</summary>
    public TimeProvider Timers => _timers;

    /// <summary>The shared judgement of the disk.</summary>
    public NodeDisk Disk { get; }

    /// <summary>Watches whether writers and timers make progress.</summary>
    public StallWatch Stalls { get; }

    /// <summary>The threads and bounds of a shard's store.</summary>
    public StoreContext StorageOf(ShardId shard, StoreObserver observer) => new(
        LocalDisk.Instance,
        _writers[shard.Value % Writers],
        InOrderOf(shard, _journals),
        _checkpoints[shard.Value % Writers],
        _timers,
        _log,
        Options)
    {
        DigestPace = _digestPace,
        Memory = _memory,
        SharedDisk = _sharedDisk,
        SharesJournalLanes = true,
        JournalPosts = InOrderOf(shard, _posts[shard.Value % Writers]),
        AnswerPosts = _answers[shard.Value % Writers],
        WakeUps = _wakeUps[shard.Value % Writers],
        PassEnd = _passEnds[shard.Value % Writers],
        Prefetch = _prefetch,
        TailReads = _tails,
        Observer = observer,
    };

    /// <summary>Has run what was posted to the writers quietly.</summary>
    public void WakeWriters()
    {
        foreach (var writer in _writers)
            writer.WakeUp();
    }

    public async ValueTask DisposeAsync()
    {
        await Stalls.DisposeAsync().ConfigureAwait(false);
        foreach (var thread in (WorkThread[])[.. _writers, .. _journals, .. _checkpoints, _prefetch, _tails])
            thread.Dispose();
        _timers.Dispose();
    }

    /// <summary>Something for each journal thread, in the order of the shard's lanes.</summary>
    private static T[] InOrderOf<T>(ShardId shard, T[] journals) =>
        [.. Enumerable.Range(0, journals.Length).Select(lane => journals[(shard.Value + lane) % journals.Length])];

    // The callers' replies are sent when all of them are made.
    private static void PassToPool(IWorkItem answers) =>
        ThreadPool.UnsafeQueueUserWorkItem(static held => HeldSending.While(static all => all.Execute(), held), answers, preferLocal: false);

    private static WorkThread[] Threads(string kind, int count, int nice = 0) =>
        [.. Enumerable.Range(0, count).Select(index => new WorkThread($"kv-{kind}-{index}", BootClock.Instance, nice))];
}
