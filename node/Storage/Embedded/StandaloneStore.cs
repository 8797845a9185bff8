using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Files;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Threads;
using KvCluster.Storage.Transactions;
using Microsoft.Extensions.Logging;

namespace KvCluster.Storage;

/// <summary>
/// A store without peers, which always leads; a record is committed when it is durable here. What <see cref="KvStore"/> is made of; benchmarks, tests of the
/// engine and the simulation use it directly, with executors, disks and requests of their own. Any thread.
/// </summary>
internal sealed class StandaloneStore : IStoreEvents, IDisposable
{
    private readonly StoreContext _context;
    private readonly IDisposable[] _threads;
    private readonly TaskCompletionSource<Exception> _failed = new(TaskCreationOptions.RunContinuationsAsynchronously);

    private StandaloneStore(StoreContext context, string directory, IDisposable[] threads, StoreIdentity? identity = null)
    {
        _context = context;
        _threads = threads;
        Store = context.Files.DirectoryExists(directory)
            ? ReplicaStore.Open(context, directory, expected: identity)
            : ReplicaStore.Create(context, directory, StateOf(identity ?? new StoreIdentity(new(1), new(1), 0)));
        Store.Start(this);
        // Posted before the notice of any request, so that no request finds a store that does not lead yet.
        context.Writer.Post(new WorkAction(Lead));
    }

    /// <summary>The engine.</summary>
    public ReplicaStore Store { get; }

    /// <summary>Writes checkpoints, and reads what is read beside them.</summary>
    public ISerialExecutor Checkpoints => _context.Checkpoints;

    /// <summary>The clock, whose timers do not need the thread pool.</summary>
    public TimeProvider Clock => _context.Time;

    /// <summary>Completes with the first failure of the engine, if there is one.</summary>
    public Task<Exception> Failure => _failed.Task;

    /// <summary>Opens or creates a store on executors that the caller provides and runs.</summary>
    public static StandaloneStore Open(StoreContext context, string directory) => new(context, directory, []);

    /// <summary>Opens or creates a store with threads of its own: four, and one for each journal write in flight.</summary>
    /// <param name="files">The disk.</param>
    /// <param name="directory">The directory.</param>
    /// <param name="options">Bounds.</param>
    /// <param name="time">The clock. Timers of the system's clock fire on a thread of the store, because pauses of writers and checkpoints end by them. Those
    /// of another one are used.</param>
    /// <param name="log">Gets one line per decision.</param>
    /// <param name="memoryBudget">What the store may use, in bytes. Without it, the store has only the options' bounds.</param>
    /// <param name="identity">What the directory must belong to, or will belong to; null accepts any.</param>
    public static StandaloneStore Open(
        IFileSystem files, string directory, StoreOptions options, TimeProvider time, ILogger log,
        long memoryBudget = long.MaxValue, StoreIdentity? identity = null)
    {
        WorkThread[] lanes = [.. Enumerable.Range(0, options.JournalWrites).Select(lane => new WorkThread($"kv-journal-{lane}", time))];
        WorkThread[] threads = [new("kv-writer", time), .. lanes, new("kv-checkpoint", time, WorkThread.BackgroundNice), new("kv-prefetch", time)];
        var timers = time == KvStoreOptions.SystemClock ? new SharedTimers(time) : null;
        IDisposable[] all = timers is null ? [.. threads] : [.. threads, timers];
        try
        {
            var context = new StoreContext(files, threads[0], lanes, threads[^2], timers ?? time, log, options)
            {
                Memory = new MemoryAccount(memoryBudget, time),
                Prefetch = threads[^1],
            };
            return new StandaloneStore(context, directory, all, identity);
        }
        catch
        {
            foreach (var thread in all)
                thread.Dispose();
            throw;
        }
    }

    /// <summary>Submits a request and awaits its answer. Returns null at once when the queue is full; the request is then back in the pool.</summary>
    public ValueTask<WriteResult>? TryWrite(WriteRequest request)
    {
        var completion = request.Completion;
        if (Store.Requests.TrySubmit(request))
            return completion;
        request.Return();
        return null;
    }

    /// <summary>A snapshot of the durable state. The caller disposes it.</summary>
    public ReadSnapshot OpenSnapshot() => Store.OpenSnapshot();

    /// <inheritdoc/>
    public void Dispose()
    {
        // The writer first, because it gives work to the others. They finish that work, and what they report back is not needed.
        foreach (var thread in _threads)
            thread.Dispose();
        Store.Dispose();
    }

    void IStoreEvents.Durable(RecordRef record) => Store.Writes.Commit(record.Etag);

    void IStoreEvents.ControlWritten(ControlState state)
    {
    }

    void IStoreEvents.Truncated(RecordRef last)
    {
    }

    void IStoreEvents.WorkQueued()
    {
        var wallTime = _context.Time.GetUtcNow();
        while (Store.Writes.CanAppend && (Store.Writes.TryAppendBatch(wallTime, out _) || !Store.Requests.Queue.IsEmpty))
            wallTime = _context.Time.GetUtcNow();
    }

    bool IStoreEvents.MayAnswerReads() => true;

    void IStoreEvents.Failed(Exception first) => _failed.TrySetResult(first);

    /// <summary>The first control state of a store.</summary>
    public static ControlState StateOf(StoreIdentity identity) =>
        new() { ReplicaId = identity.ReplicaId, Shard = identity.Shard, ClusterHash = identity.ClusterHash };

    private void Lead()
    {
        Store.Writes.Lead(Math.Max(Store.Log.Last.Epoch, Store.Durable.Control.PromisedEpoch) + 1);
        Store.Writes.AppendEpochOpen(_context.Time.GetUtcNow());
    }
}
