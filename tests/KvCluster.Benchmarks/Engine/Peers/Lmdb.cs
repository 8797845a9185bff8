using System.Runtime.InteropServices;

namespace KvCluster.Benchmarks.Engine.Peers;

/// <summary>
/// The part of LMDB's C interface that the benchmarks use. Calls that only touch memory have no transition to native code, so that they cost what they cost
/// in C; those that write or wait have one.
/// </summary>
internal static unsafe partial class Lmdb
{
    public const string Library = "liblmdb.so.0";
    public const uint ReadOnly = 0x20000;
    public const uint NoThreadLocal = 0x200000;
    public const uint NoReadAhead = 0x800000;
    public const uint NoSync = 0x10000;
    public const uint Create = 0x40000;
    public const uint Append = 0x20000;
    public const int First = 0;
    public const int Next = 8;
    public const int NotFound = -30798;

    /// <summary>MDB_val.</summary>
    [StructLayout(LayoutKind.Sequential)]
    public struct Value
    {
        public nuint Length;
        public byte* Data;
    }

    [LibraryImport(Library, EntryPoint = "mdb_env_create")]
    public static partial int EnvironmentCreate(out nint environment);

    [LibraryImport(Library, EntryPoint = "mdb_env_set_mapsize")]
    public static partial int EnvironmentSetMapSize(nint environment, nuint bytes);

    [LibraryImport(Library, EntryPoint = "mdb_env_open", StringMarshalling = StringMarshalling.Utf8)]
    public static partial int EnvironmentOpen(nint environment, string path, uint flags, uint mode);

    [LibraryImport(Library, EntryPoint = "mdb_env_set_flags")]
    public static partial int EnvironmentSetFlags(nint environment, uint flags, int on);

    [LibraryImport(Library, EntryPoint = "mdb_env_close")]
    public static partial void EnvironmentClose(nint environment);

    [LibraryImport(Library, EntryPoint = "mdb_env_sync")]
    public static partial int EnvironmentSync(nint environment, int force);

    [LibraryImport(Library, EntryPoint = "mdb_txn_begin")]
    public static partial int TransactionBegin(nint environment, nint parent, uint flags, out nint transaction);

    [LibraryImport(Library, EntryPoint = "mdb_txn_commit")]
    public static partial int TransactionCommit(nint transaction);

    [LibraryImport(Library, EntryPoint = "mdb_txn_abort")]
    public static partial void TransactionAbort(nint transaction);

    [LibraryImport(Library, EntryPoint = "mdb_txn_renew")]
    [SuppressGCTransition]
    public static partial int TransactionRenew(nint transaction);

    [LibraryImport(Library, EntryPoint = "mdb_txn_reset")]
    [SuppressGCTransition]
    public static partial void TransactionReset(nint transaction);

    [LibraryImport(Library, EntryPoint = "mdb_dbi_open")]
    public static partial int DatabaseOpen(nint transaction, nint name, uint flags, out uint database);

    [LibraryImport(Library, EntryPoint = "mdb_get")]
    [SuppressGCTransition]
    public static partial int Get(nint transaction, uint database, Value* key, Value* value);

    [LibraryImport(Library, EntryPoint = "mdb_put")]
    public static partial int Put(nint transaction, uint database, Value* key, Value* value, uint flags);

    [LibraryImport(Library, EntryPoint = "mdb_cursor_open")]
    public static partial int CursorOpen(nint transaction, uint database, out nint cursor);

    [LibraryImport(Library, EntryPoint = "mdb_cursor_close")]
    public static partial void CursorClose(nint cursor);

    [LibraryImport(Library, EntryPoint = "mdb_cursor_get")]
    [SuppressGCTransition]
    public static partial int CursorGet(nint cursor, Value* key, Value* value, int operation);

    /// <summary>Throws if a call failed.</summary>
    public static void Check(int result)
    {
        if (result != 0)
            throw new InvalidOperationException($"LMDB failed with {result}.");
    }
}
