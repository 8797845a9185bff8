using KvCluster.Storage;

namespace KvCluster.Benchmarks.Engine.Peers;

/// <summary>Our engine as a program embeds it: a <see cref="KvStore"/> with one tree and the default options.</summary>
internal sealed class KvStoreEngine : IEngine
{
    private const int LoadBatchBytes = 1 << 20;
    private readonly KvStore _store;
    private readonly KvTree _tree;

    public KvStoreEngine(string directory)
    {
        _store = KvStore.Open(directory);
        _tree = _store.CreateTreeAsync("benchmark").GetAwaiter().GetResult();
    }

    /// <inheritdoc/>
    public bool Blocks => false;

    /// <inheritdoc/>
    public IEngineWriter OpenWriter() => new Writer(_store, _tree);

    /// <inheritdoc/>
    public IEngineLoader OpenLoader() => new Writer(_store, _tree);

    /// <inheritdoc/>
    public IEngineReader OpenReader() => new Reader(_store, _tree);

    /// <inheritdoc/>
    public Task SettleAsync() => _store.CheckpointAsync();

    /// <inheritdoc/>
    public void Dispose() => _store.DisposeAsync().AsTask().GetAwaiter().GetResult();

    private sealed class Writer(KvStore store, KvTree tree) : IEngineWriter, IEngineLoader
    {
        private KvBatch? _batch;

        public int BatchBytes => LoadBatchBytes;

        public void Put(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value) => (_batch ??= new KvBatch()).Put(tree, key, value);

        public async ValueTask CommitAsync()
        {
            if (_batch is not { } batch)
                return;
            _batch = null;
            await store.WriteAsync(batch);
        }

        public Task FinishAsync() => CommitAsync().AsTask();

        public void Dispose()
        {
        }
    }

    private sealed class Reader(KvStore store, KvTree tree) : IEngineReader
    {
        private KvSnapshot? _snapshot;

        public void Begin() => _snapshot = store.OpenSnapshot();

        public void End() => _snapshot!.Dispose();

        public int Get(ReadOnlySpan<byte> key) => Get(_snapshot!, key);

        public int GetAlone(ReadOnlySpan<byte> key)
        {
            using var snapshot = store.OpenSnapshot();
            return Get(snapshot, key);
        }

        public long Scan(long itemsMax, out long bytes)
        {
            using var cursor = _snapshot!.OpenCursor(tree);
            var count = 0L;
            bytes = 0;
            for (; count < itemsMax && cursor.MoveNext(); count++)
            {
                var value = cursor.Value;
                bytes += cursor.Key.Length + value.Length + value[0];
            }
            return count;
        }

        public void Dispose()
        {
        }

        private int Get(KvSnapshot snapshot, ReadOnlySpan<byte> key) => snapshot.TryGet(tree, key, out var value) ? value[0] + value[^1] : -1;
    }
}
