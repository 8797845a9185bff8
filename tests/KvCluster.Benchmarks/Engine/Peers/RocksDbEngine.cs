namespace KvCluster.Benchmarks.Engine.Peers;

/// <summary>
/// RocksDB with a synced journal (WAL) whose files are used again, as much memory for what is only in the journal as ours has, a Bloom filter of 10 bits, a
/// block cache for all data, and no compression, because the values cannot be compressed.
/// </summary>
internal sealed class RocksDbEngine : IEngine
{
    private const double FilterBitsPerKey = 10;
    private const int LoadBatchBytes = 128 << 10;
    private const int RecycledJournals = 4;

    private const long CacheBytesDefault = 4L << 30;

    // The part of the memory budget up to which ours keeps changed pages in memory.
    private const int WriteBufferPart = 4;
    private static readonly string[] BackgroundWork = ["rocksdb.num-running-flushes", "rocksdb.compaction-pending", "rocksdb.num-running-compactions"];
    private static readonly TimeSpan BackgroundPoll = TimeSpan.FromMilliseconds(20);
    private readonly nint _cache;
    private readonly nint _table;
    private readonly nint _options;
    private readonly nint _database;

    /// <summary>With a cache for all data, on a machine with memory for it.</summary>
    /// <param name="directory">Created if it does not exist.</param>
    public RocksDbEngine(string directory)
        : this(directory, CacheBytesDefault, KvClusterEngine.MemoryBudgetDefault)
    {
    }

    /// <param name="directory">Created if it does not exist.</param>
    /// <param name="cacheBytes">Size of the block cache.</param>
    /// <param name="memoryBudget">The bytes that ours may use for its stores on this machine.</param>
    public RocksDbEngine(string directory, long cacheBytes, long memoryBudget)
    {
        _cache = RocksDb.CacheCreate((nuint)cacheBytes);
        _table = RocksDb.TableCreate();
        RocksDb.TableSetBlockCache(_table, _cache);
        RocksDb.TableSetFilterPolicy(_table, RocksDb.FilterPolicyCreateBloom(FilterBitsPerKey));
        _options = RocksDb.OptionsCreate();
        RocksDb.OptionsSetCreateIfMissing(_options, 1);
        RocksDb.OptionsSetCompression(_options, 0);
        RocksDb.OptionsSetWriteBufferSize(_options, (nuint)(memoryBudget / WriteBufferPart));
        RocksDb.OptionsSetRecycledJournals(_options, RecycledJournals);
        RocksDb.OptionsIncreaseParallelism(_options, Math.Max(2, Environment.ProcessorCount));
        RocksDb.OptionsSetTable(_options, _table);
        _database = RocksDb.Open(_options, directory, out var error);
        RocksDb.Check(error);
    }

    /// <inheritdoc/>
    public bool Blocks => true;

    /// <inheritdoc/>
    public IEngineWriter OpenWriter() => new Writer(this, isLoad: false);

    /// <inheritdoc/>
    public IEngineLoader OpenLoader() => new Writer(this, isLoad: true);

    /// <inheritdoc/>
    public IEngineReader OpenReader() => new Reader(_database);

    /// <inheritdoc/>
    public async Task SettleAsync()
    {
        Flush();
        while (BackgroundWork.Any(property => RocksDb.PropertyInt(_database, property, out var value) == 0 && value > 0))
            await Task.Delay(BackgroundPoll);
    }

    /// <inheritdoc/>
    public void Dispose()
    {
        RocksDb.Close(_database);
        RocksDb.OptionsDestroy(_options);
        RocksDb.TableDestroy(_table);
        RocksDb.CacheDestroy(_cache);
    }

    private void Flush()
    {
        var options = RocksDb.FlushOptionsCreate();
        RocksDb.Flush(_database, options, out var error);
        RocksDb.FlushOptionsDestroy(options);
        RocksDb.Check(error);
    }

    private sealed class Writer : IEngineWriter, IEngineLoader
    {
        private readonly RocksDbEngine _engine;
        private readonly nint _options = RocksDb.WriteOptionsCreate();
        private readonly nint _batch = RocksDb.BatchCreate();

        public Writer(RocksDbEngine engine, bool isLoad)
        {
            _engine = engine;
            // A load needs no journal: it ends with a flush of the tables.
            if (isLoad)
                RocksDb.WriteOptionsDisableJournal(_options, 1);
            else
                RocksDb.WriteOptionsSetSync(_options, 1);
        }

        public int BatchBytes => LoadBatchBytes;

        public unsafe void Put(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value)
        {
            fixed (byte* keyData = key, valueData = value)
                RocksDb.BatchPut(_batch, keyData, (nuint)key.Length, valueData, (nuint)value.Length);
        }

        public ValueTask CommitAsync()
        {
            RocksDb.Write(_engine._database, _options, _batch, out var error);
            RocksDb.Check(error);
            RocksDb.BatchClear(_batch);
            return ValueTask.CompletedTask;
        }

        public async Task FinishAsync()
        {
            await CommitAsync();
            _engine.Flush();
        }

        public void Dispose()
        {
            RocksDb.BatchDestroy(_batch);
            RocksDb.WriteOptionsDestroy(_options);
        }
    }

    private sealed unsafe class Reader(nint database) : IEngineReader
    {
        private readonly nint _newest = RocksDb.ReadOptionsCreate();
        private readonly nint _ofSnapshot = RocksDb.ReadOptionsCreate();
        private nint _snapshot;

        public void Begin()
        {
            _snapshot = RocksDb.CreateSnapshot(database);
            RocksDb.ReadOptionsSetSnapshot(_ofSnapshot, _snapshot);
        }

        public void End()
        {
            RocksDb.ReadOptionsSetSnapshot(_ofSnapshot, 0);
            RocksDb.ReleaseSnapshot(database, _snapshot);
        }

        public int Get(ReadOnlySpan<byte> key) => Get(_ofSnapshot, key);

        // A read without a snapshot sees one state anyway.
        public int GetAlone(ReadOnlySpan<byte> key) => Get(_newest, key);

        public long Scan(long itemsMax, out long bytes)
        {
            var iterator = RocksDb.CreateIterator(database, _ofSnapshot);
            var count = 0L;
            bytes = 0;
            for (RocksDb.IteratorSeekToFirst(iterator); count < itemsMax && RocksDb.IteratorValid(iterator) != 0; RocksDb.IteratorNext(iterator), count++)
            {
                RocksDb.IteratorKey(iterator, out var keyLength);
                var value = RocksDb.IteratorValue(iterator, out var valueLength);
                bytes += (long)(keyLength + valueLength) + value[0];
            }
            RocksDb.IteratorDestroy(iterator);
            return count;
        }

        public void Dispose()
        {
            RocksDb.ReadOptionsDestroy(_newest);
            RocksDb.ReadOptionsDestroy(_ofSnapshot);
        }

        private int Get(nint options, ReadOnlySpan<byte> key)
        {
            fixed (byte* keyData = key)
            {
                var slice = RocksDb.GetPinned(database, options, keyData, (nuint)key.Length, out var error);
                RocksDb.Check(error);
                if (slice == 0)
                    return -1;
                var value = RocksDb.PinnedValue(slice, out var length);
                var sum = value[0] + value[length - 1];
                RocksDb.PinnedDestroy(slice);
                return sum;
            }
        }
    }
}
