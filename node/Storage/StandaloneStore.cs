using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Threads;
using KvCluster.Storage.Transactions;
using Microsoft.Extensions.Logging;

namespace KvCluster.Storage;

/// <summary>
/// A store without peers: it leads, and what is durable here is committed. For benchmarks and for tests of the engine; any thread.
/// </summary>
internal sealed class StandaloneStore : IStoreEvents, IDisposable
{
    private readonly StoreContext _context;
    private readonly WorkThread[] _threads;
    private readonly TaskCompletionSource<Exception> _failed = new(TaskCreationOptions.RunContinuationsAsynchronously);

    private StandaloneStore(StoreContext context, string directory, WorkThread[] threads)
    {
        _context = context;
        _threads = threads;
        Store = context.Files.DirectoryExists(directory)
            ? ReplicaStore.Open(context, directory)
            : ReplicaStore.Create(context, directory, new ControlState { ReplicaId = 1, Shard = 1 });
        Store.Start(this);
        // Before the notice of any request, so that none finds a store that does not lead yet.
        context.Writer.Post(new WorkAction(Lead));
    }

    /// <summary>The engine.</summary>
    public ReplicaStore Store { get; }

    /// <summary>Completes with the first failure if the engine ends by one.</summary>
    public Task<Exception> Failure => _failed.Task;

    /// <summary>Opens or creates a store on executors of the caller, who drains them.</summary>
    public static StandaloneStore Open(StoreContext context, string directory) => new(context, directory, []);

    /// <summary>Opens or creates a store on four threads of its own.</summary>
    public static StandaloneStore Open(IFileSystem files, string directory, StoreOptions options, TimeProvider time, ILogger log)
    {
        WorkThread[] threads = [new("kv-writer"), new("kv-journal-0"), new("kv-journal-1"), new("kv-checkpoint")];
        try
        {
            return new StandaloneStore(new StoreContext(files, threads[0], threads[1..3], threads[3], time, log, options), directory, threads);
        }
        catch
        {
            foreach (var thread in threads)
                thread.Dispose();
            throw;
        }
    }

    /// <summary>Submits a request and awaits its answer; null, at once, when the queue is full (the request is given back to the pool then).</summary>
    public ValueTask<WriteResult>? TryWrite(WriteRequest request)
    {
        var completion = request.Completion;
        if (Store.TrySubmit(request))
            return completion;
        request.Return();
        return null;
    }

    /// <summary>A snapshot of what is durable. To be disposed.</summary>
    public ReadSnapshot OpenSnapshot() => Store.OpenSnapshot();

    /// <inheritdoc/>
    public void Dispose()
    {
        // The writer first: it hands out work to the others, which they finish; what they report back is not needed.
        foreach (var thread in _threads)
            thread.Dispose();
        Store.Dispose();
    }

    void IStoreEvents.Durable(RecordRef record) => Store.Commit(record.Etag);

    void IStoreEvents.ControlWritten(ControlState state)
    {
    }

    void IStoreEvents.CutDone(RecordRef last)
    {
    }

    void IStoreEvents.WorkQueued()
    {
        while (!Store.QueueIsEmpty && Store.CanAppendBatch)
            Store.TryAppendBatch(_context.Time.GetUtcNow(), out _);
    }

    bool IStoreEvents.MayAnswerReads() => true;

    void IStoreEvents.Failed(Exception first) => _failed.TrySetResult(first);

    private void Lead()
    {
        Store.Lead(Math.Max(Store.Last.Epoch, Store.Control.PromisedEpoch) + 1);
        Store.AppendEpochOpen(_context.Time.GetUtcNow());
    }
}
