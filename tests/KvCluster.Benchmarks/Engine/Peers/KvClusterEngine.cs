using System.Runtime.CompilerServices;
using System.Threading.Tasks.Sources;
using KvCluster.Node.Configuration;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Benchmarks.Engine.Peers;

/// <summary>Our engine, by default with the options of a node, but without journal kept for followers, because a store without peers has none.</summary>
internal sealed class KvClusterEngine(string directory, StoreOptions options, long memoryBudget, IFileSystem? files = null) : IEngine
{
    private const int LoadBatchBytes = 64 << 10;
    private const int LoadBatchesInFlight = 64;

    public KvClusterEngine(string directory)
        : this(directory, new StoreOptions(), MemoryBudgetDefault)
    {
    }

    /// <summary>What a node on this machine may use for its stores by default, in bytes.</summary>
    public static long MemoryBudgetDefault => (long)NodeOptions.MemoryBudgetDefault() << 20;

    /// <summary>The engine itself.</summary>
    public StandaloneStore Store { get; } = StandaloneStore.Open(
        files ?? LocalDisk.Instance, directory, options with { RetainedJournalBytes = 0 }, TimeProvider.System, NullLogger.Instance, memoryBudget);

    /// <inheritdoc/>
    public bool Blocks => false;

    /// <inheritdoc/>
    public IEngineWriter OpenWriter() => new Writer(Store);

    /// <inheritdoc/>
    public IEngineLoader OpenLoader() => new Loader(Store);

    /// <inheritdoc/>
    public IEngineReader OpenReader() => new Reader(Store);

    /// <inheritdoc/>
    public async Task SettleAsync() => await Store.Store.Checkpoints.RequestAsync();

    /// <inheritdoc/>
    public void Dispose()
    {
        Store.Store.CloseAsync().GetAwaiter().GetResult();
        Store.Dispose();
    }

    /// <summary>Ends it as if its process had been killed. Nothing else may be called afterwards, and no snapshot may be open.</summary>
    public void Kill() => Store.Dispose();

    private static ValueTask<WriteResult> Submit(StandaloneStore store, WriteRequest request) =>
        store.TryWrite(request) ?? throw new InvalidOperationException("The engine's queue is full.");

    private static void ThrowUnlessApplied(WriteResult result)
    {
        if (result.Outcome != WriteOutcome.Applied)
            throw new InvalidOperationException($"A write ended as {result}.");
    }

    // Completes through itself, because an async method would allocate for each caller, and what is allocated is measured.
    private sealed class Writer : IEngineWriter, IValueTaskSource
    {
        private readonly StandaloneStore _store;
        private readonly Action _complete;
        private ManualResetValueTaskSourceCore<bool> _core;
        private ValueTaskAwaiter<WriteResult> _answer;
        private WriteRequest? _request;

        public Writer(StandaloneStore store) => (_store, _complete) = (store, Complete);

        public void Put(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value) => (_request ??= WriteRequest.Rent()).Put(key, value);

        public ValueTask CommitAsync()
        {
            var request = _request ?? throw new InvalidOperationException("Nothing was put.");
            _request = null;
            _core.Reset();
            _answer = Submit(_store, request).GetAwaiter();
            _answer.UnsafeOnCompleted(_complete);
            return new ValueTask(this, _core.Version);
        }

        public void Dispose() => _request?.Return();

        ValueTaskSourceStatus IValueTaskSource.GetStatus(short token) => _core.GetStatus(token);

        void IValueTaskSource.OnCompleted(Action<object?> continuation, object? state, short token, ValueTaskSourceOnCompletedFlags flags) =>
            _core.OnCompleted(continuation, state, token, flags);

        void IValueTaskSource.GetResult(short token) => _core.GetResult(token);

        private void Complete()
        {
            try
            {
                ThrowUnlessApplied(_answer.GetResult());
                _core.SetResult(true);
            }
            catch (Exception failure)
            {
                _core.SetException(failure);
            }
        }
    }

    private sealed class Loader(StandaloneStore store) : IEngineLoader
    {
        private readonly Queue<ValueTask<WriteResult>> _waiting = new();
        private WriteRequest? _request;

        public int BatchBytes => LoadBatchBytes;

        public void Put(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value) => (_request ??= WriteRequest.Rent(LoadBatchBytes)).Put(key, value);

        public async ValueTask CommitAsync()
        {
            if (_request is not { } request)
                return;
            _request = null;
            if (_waiting.Count == LoadBatchesInFlight)
                ThrowUnlessApplied(await _waiting.Dequeue());
            _waiting.Enqueue(Submit(store, request));
        }

        public async Task FinishAsync()
        {
            await CommitAsync();
            while (_waiting.TryDequeue(out var answer))
                ThrowUnlessApplied(await answer);
        }

        public void Dispose() => _request?.Return();
    }

    private sealed class Reader(StandaloneStore store) : IEngineReader
    {
        private ReadSnapshot _snapshot;

        public void Begin() => _snapshot = store.OpenSnapshot();

        public void End() => _snapshot.Dispose();

        public int Get(ReadOnlySpan<byte> key) => Get(_snapshot, key);

        public int GetAlone(ReadOnlySpan<byte> key)
        {
            using var snapshot = store.OpenSnapshot();
            return Get(snapshot, key);
        }

        public long Scan(long itemsMax, out long bytes)
        {
            using var cursor = _snapshot.Cursor(TreeId.Kv);
            var count = 0L;
            bytes = 0;
            for (; count < itemsMax && cursor.MoveNext(); count++)
            {
                var value = KvValue.Read(cursor.Value, out _);
                bytes += cursor.Key.Length + value.Length + value[0];
            }
            return count;
        }

        public void Dispose()
        {
        }

        private static int Get(in ReadSnapshot snapshot, ReadOnlySpan<byte> key)
        {
            if (!snapshot.TryGet(TreeId.Kv, key, out var stored))
                return -1;
            var value = KvValue.Read(stored, out _);
            return value[0] + value[^1];
        }
    }
}
