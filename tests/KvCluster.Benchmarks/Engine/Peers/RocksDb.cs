using System.Reflection;
using System.Runtime.InteropServices;

namespace KvCluster.Benchmarks.Engine.Peers;

/// <summary>The part of RocksDB's C interface that the benchmarks use.</summary>
internal static unsafe partial class RocksDb
{
    // Debian's package has its version in the name of the library.
    private const string Library = "librocksdb";
    private static readonly nint Loaded = Load();

    static RocksDb() => NativeLibrary.SetDllImportResolver(
        typeof(RocksDb).Assembly, static (string name, Assembly _, DllImportSearchPath? _) => name == Library ? Loaded : 0);

    /// <summary>Whether the library is installed.</summary>
    public static bool IsInstalled => Loaded != 0;

    [LibraryImport(Library, EntryPoint = "rocksdb_options_create")]
    public static partial nint OptionsCreate();

    [LibraryImport(Library, EntryPoint = "rocksdb_options_destroy")]
    public static partial void OptionsDestroy(nint options);

    [LibraryImport(Library, EntryPoint = "rocksdb_options_set_create_if_missing")]
    public static partial void OptionsSetCreateIfMissing(nint options, byte value);

    [LibraryImport(Library, EntryPoint = "rocksdb_options_set_compression")]
    public static partial void OptionsSetCompression(nint options, int value);

    [LibraryImport(Library, EntryPoint = "rocksdb_options_set_write_buffer_size")]
    public static partial void OptionsSetWriteBufferSize(nint options, nuint bytes);

    [LibraryImport(Library, EntryPoint = "rocksdb_options_set_recycle_log_file_num")]
    public static partial void OptionsSetRecycledJournals(nint options, nuint count);

    [LibraryImport(Library, EntryPoint = "rocksdb_options_increase_parallelism")]
    public static partial void OptionsIncreaseParallelism(nint options, int threads);

    [LibraryImport(Library, EntryPoint = "rocksdb_options_set_block_based_table_factory")]
    public static partial void OptionsSetTable(nint options, nint table);

    [LibraryImport(Library, EntryPoint = "rocksdb_block_based_options_create")]
    public static partial nint TableCreate();

    [LibraryImport(Library, EntryPoint = "rocksdb_block_based_options_destroy")]
    public static partial void TableDestroy(nint table);

    [LibraryImport(Library, EntryPoint = "rocksdb_block_based_options_set_block_cache")]
    public static partial void TableSetBlockCache(nint table, nint cache);

    [LibraryImport(Library, EntryPoint = "rocksdb_block_based_options_set_filter_policy")]
    public static partial void TableSetFilterPolicy(nint table, nint policy);

    [LibraryImport(Library, EntryPoint = "rocksdb_filterpolicy_create_bloom_full")]
    public static partial nint FilterPolicyCreateBloom(double bitsPerKey);

    [LibraryImport(Library, EntryPoint = "rocksdb_cache_create_lru")]
    public static partial nint CacheCreate(nuint bytes);

    [LibraryImport(Library, EntryPoint = "rocksdb_cache_destroy")]
    public static partial void CacheDestroy(nint cache);

    [LibraryImport(Library, EntryPoint = "rocksdb_open", StringMarshalling = StringMarshalling.Utf8)]
    public static partial nint Open(nint options, string path, out nint error);

    [LibraryImport(Library, EntryPoint = "rocksdb_close")]
    public static partial void Close(nint database);

    [LibraryImport(Library, EntryPoint = "rocksdb_writeoptions_create")]
    public static partial nint WriteOptionsCreate();

    [LibraryImport(Library, EntryPoint = "rocksdb_writeoptions_destroy")]
    public static partial void WriteOptionsDestroy(nint options);

    [LibraryImport(Library, EntryPoint = "rocksdb_writeoptions_set_sync")]
    public static partial void WriteOptionsSetSync(nint options, byte value);

    [LibraryImport(Library, EntryPoint = "rocksdb_writeoptions_disable_WAL")]
    public static partial void WriteOptionsDisableJournal(nint options, int value);

    [LibraryImport(Library, EntryPoint = "rocksdb_writebatch_create")]
    public static partial nint BatchCreate();

    [LibraryImport(Library, EntryPoint = "rocksdb_writebatch_destroy")]
    public static partial void BatchDestroy(nint batch);

    [LibraryImport(Library, EntryPoint = "rocksdb_writebatch_clear")]
    [SuppressGCTransition]
    public static partial void BatchClear(nint batch);

    [LibraryImport(Library, EntryPoint = "rocksdb_writebatch_put")]
    [SuppressGCTransition]
    public static partial void BatchPut(nint batch, byte* key, nuint keyLength, byte* value, nuint valueLength);

    [LibraryImport(Library, EntryPoint = "rocksdb_write")]
    public static partial void Write(nint database, nint options, nint batch, out nint error);

    [LibraryImport(Library, EntryPoint = "rocksdb_flushoptions_create")]
    public static partial nint FlushOptionsCreate();

    [LibraryImport(Library, EntryPoint = "rocksdb_flushoptions_destroy")]
    public static partial void FlushOptionsDestroy(nint options);

    [LibraryImport(Library, EntryPoint = "rocksdb_flush")]
    public static partial void Flush(nint database, nint options, out nint error);

    [LibraryImport(Library, EntryPoint = "rocksdb_property_int", StringMarshalling = StringMarshalling.Utf8)]
    public static partial int PropertyInt(nint database, string name, out ulong value);

    [LibraryImport(Library, EntryPoint = "rocksdb_readoptions_create")]
    public static partial nint ReadOptionsCreate();

    [LibraryImport(Library, EntryPoint = "rocksdb_readoptions_destroy")]
    public static partial void ReadOptionsDestroy(nint options);

    [LibraryImport(Library, EntryPoint = "rocksdb_readoptions_set_snapshot")]
    public static partial void ReadOptionsSetSnapshot(nint options, nint snapshot);

    [LibraryImport(Library, EntryPoint = "rocksdb_create_snapshot")]
    public static partial nint CreateSnapshot(nint database);

    [LibraryImport(Library, EntryPoint = "rocksdb_release_snapshot")]
    public static partial void ReleaseSnapshot(nint database, nint snapshot);

    [LibraryImport(Library, EntryPoint = "rocksdb_get_pinned")]
    public static partial nint GetPinned(nint database, nint options, byte* key, nuint keyLength, out nint error);

    [LibraryImport(Library, EntryPoint = "rocksdb_pinnableslice_value")]
    [SuppressGCTransition]
    public static partial byte* PinnedValue(nint slice, out nuint length);

    [LibraryImport(Library, EntryPoint = "rocksdb_pinnableslice_destroy")]
    [SuppressGCTransition]
    public static partial void PinnedDestroy(nint slice);

    [LibraryImport(Library, EntryPoint = "rocksdb_create_iterator")]
    public static partial nint CreateIterator(nint database, nint options);

    [LibraryImport(Library, EntryPoint = "rocksdb_iter_destroy")]
    public static partial void IteratorDestroy(nint iterator);

    [LibraryImport(Library, EntryPoint = "rocksdb_iter_seek_to_first")]
    public static partial void IteratorSeekToFirst(nint iterator);

    [LibraryImport(Library, EntryPoint = "rocksdb_iter_next")]
    [SuppressGCTransition]
    public static partial void IteratorNext(nint iterator);

    [LibraryImport(Library, EntryPoint = "rocksdb_iter_valid")]
    [SuppressGCTransition]
    public static partial byte IteratorValid(nint iterator);

    [LibraryImport(Library, EntryPoint = "rocksdb_iter_key")]
    [SuppressGCTransition]
    public static partial byte* IteratorKey(nint iterator, out nuint length);

    [LibraryImport(Library, EntryPoint = "rocksdb_iter_value")]
    [SuppressGCTransition]
    public static partial byte* IteratorValue(nint iterator, out nuint length);

    /// <summary>Throws if a call failed.</summary>
    public static void Check(nint error)
    {
        if (error != 0)
            throw new InvalidOperationException($"RocksDB failed: {Marshal.PtrToStringUTF8(error)}");
    }

    private static nint Load()
    {
        foreach (var folder in (string[])["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"])
        {
            if (!Directory.Exists(folder))
                continue;
            foreach (var path in Directory.EnumerateFiles(folder, "librocksdb.so*").OrderDescending())
            {
                if (NativeLibrary.TryLoad(path, out var library))
                    return library;
            }
        }
        return 0;
    }
}
