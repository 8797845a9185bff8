using System.Runtime.InteropServices;

namespace KvCluster.Benchmarks.Engine.Peers;

/// <summary>LMDB with its default, durable commits. Readers are not bound to threads (MDB_NOTLS) and renew one transaction.</summary>
internal sealed unsafe class LmdbEngine : IEngine
{
    private static readonly nuint MapBytes = unchecked((nuint)(256L << 30));
    private const int LoadBatchBytes = 16 << 20;
    private readonly nint _environment;
    private readonly uint _database;

    /// <param name="directory">Created if it does not exist.</param>
    /// <param name="readAhead">Whether the kernel reads ahead; bad for random reads of more data than memory, good for scans.</param>
    public LmdbEngine(string directory, bool readAhead = true)
    {
        Directory.CreateDirectory(directory);
        Lmdb.Check(Lmdb.EnvironmentCreate(out _environment));
        Lmdb.Check(Lmdb.EnvironmentSetMapSize(_environment, MapBytes));
        Lmdb.Check(Lmdb.EnvironmentOpen(_environment, directory, Lmdb.NoThreadLocal | (readAhead ? 0 : Lmdb.NoReadAhead), 0b110_100_100));
        Lmdb.Check(Lmdb.TransactionBegin(_environment, 0, 0, out var transaction));
        Lmdb.Check(Lmdb.DatabaseOpen(transaction, 0, 0, out _database));
        Lmdb.Check(Lmdb.TransactionCommit(transaction));
    }

    /// <summary>Whether the library is installed.</summary>
    public static bool IsInstalled => NativeLibrary.TryLoad(Lmdb.Library, out _);

    /// <inheritdoc/>
    public bool Blocks => true;

    /// <inheritdoc/>
    public IEngineWriter OpenWriter() => new Writer(_environment, _database, 0);

    /// <inheritdoc/>
    public IEngineLoader OpenLoader() => new Loader(_environment, _database);

    /// <inheritdoc/>
    public IEngineReader OpenReader() => new Reader(_environment, _database);

    /// <inheritdoc/>
    public Task SettleAsync()
    {
        Lmdb.Check(Lmdb.EnvironmentSync(_environment, 1));
        return Task.CompletedTask;
    }

    /// <inheritdoc/>
    public void Dispose() => Lmdb.EnvironmentClose(_environment);

    private class Writer(nint environment, uint database, uint flags) : IEngineWriter
    {
        private nint _transaction;

        public void Put(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value)
        {
            if (_transaction == 0)
                Lmdb.Check(Lmdb.TransactionBegin(environment, 0, 0, out _transaction));
            fixed (byte* keyData = key, valueData = value)
            {
                var keyValue = new Lmdb.Value { Length = (nuint)key.Length, Data = keyData };
                var valueValue = new Lmdb.Value { Length = (nuint)value.Length, Data = valueData };
                Lmdb.Check(Lmdb.Put(_transaction, database, &keyValue, &valueValue, flags));
            }
        }

        public ValueTask CommitAsync()
        {
            Commit();
            return ValueTask.CompletedTask;
        }

        protected void Commit()
        {
            if (_transaction != 0)
                Lmdb.Check(Lmdb.TransactionCommit(_transaction));
            _transaction = 0;
        }

        public virtual void Dispose()
        {
            if (_transaction != 0)
                Lmdb.TransactionAbort(_transaction);
            _transaction = 0;
        }
    }

    // Appends, and syncs once, at the end.
    private sealed class Loader : Writer, IEngineLoader
    {
        private readonly nint _environment;

        public Loader(nint environment, uint database)
            : base(environment, database, Lmdb.Append)
        {
            _environment = environment;
            Lmdb.Check(Lmdb.EnvironmentSetFlags(environment, Lmdb.NoSync, 1));
        }

        public int BatchBytes => LoadBatchBytes;

        public Task FinishAsync()
        {
            Commit();
            Lmdb.Check(Lmdb.EnvironmentSync(_environment, 1));
            return Task.CompletedTask;
        }

        public override void Dispose()
        {
            base.Dispose();
            Lmdb.Check(Lmdb.EnvironmentSetFlags(_environment, Lmdb.NoSync, 0));
        }
    }

    private sealed class Reader : IEngineReader
    {
        private readonly uint _database;
        private readonly nint _transaction;

        public Reader(nint environment, uint database)
        {
            _database = database;
            Lmdb.Check(Lmdb.TransactionBegin(environment, 0, Lmdb.ReadOnly, out _transaction));
            Lmdb.TransactionReset(_transaction);
        }

        public void Begin() => Lmdb.Check(Lmdb.TransactionRenew(_transaction));

        public void End() => Lmdb.TransactionReset(_transaction);

        public int Get(ReadOnlySpan<byte> key)
        {
            fixed (byte* keyData = key)
            {
                var keyValue = new Lmdb.Value { Length = (nuint)key.Length, Data = keyData };
                Lmdb.Value value;
                var result = Lmdb.Get(_transaction, _database, &keyValue, &value);
                if (result == Lmdb.NotFound)
                    return -1;
                Lmdb.Check(result);
                return value.Data[0] + value.Data[value.Length - 1];
            }
        }

        public int GetAlone(ReadOnlySpan<byte> key)
        {
            Begin();
            var sum = Get(key);
            End();
            return sum;
        }

        public long Scan(long itemsMax, out long bytes)
        {
            Lmdb.Check(Lmdb.CursorOpen(_transaction, _database, out var cursor));
            var count = 0L;
            bytes = 0;
            Lmdb.Value key, value;
            for (var operation = Lmdb.First; count < itemsMax; operation = Lmdb.Next, count++)
            {
                var result = Lmdb.CursorGet(cursor, &key, &value, operation);
                if (result == Lmdb.NotFound)
                    break;
                Lmdb.Check(result);
                bytes += (long)(key.Length + value.Length) + value.Data[0];
            }
            Lmdb.CursorClose(cursor);
            return count;
        }

        public void Dispose() => Lmdb.TransactionAbort(_transaction);
    }
}
