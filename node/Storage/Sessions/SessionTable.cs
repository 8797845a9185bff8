using System.Buffers.Binary;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Sessions;

/// <summary>
/// The tree <c>sessions</c> (FORMAT.md, "Sessions"): an entry for each session, and its results in entries of 64, which are written in place and go as a whole.
/// Changed by <c>RecordApplier</c> alone, so that every replica has the same. Writer executor, or the opening thread.
/// </summary>
internal static class SessionTable
{
    /// <summary>Requests of a session that may be open at once: what one client has in flight to one node.</summary>
    public const int OpenRequestsMax = 4_096;

    private const int ResultsPerEntry = 64;
    private const int ResultBytes = 20;
    private const int EntryBytes = ResultsPerEntry * ResultBytes;
    private const int StateKeyBytes = 1 + 16;
    private const int EntryKeyBytes = StateKeyBytes + sizeof(ulong);

    /// <summary>First byte of the keys of sessions' states; <see cref="ResultsMark"/> is that of their results.</summary>
    private const byte StateMark = 1;
    private const byte ResultsMark = 2;

    private static ReadOnlySpan<byte> CountKey => [0];

    /// <summary>How many sessions there are.</summary>
    public static ulong Count(WriteBatch batch) =>
        batch.TryGet(TreeId.Sessions, CountKey, out var stored) ? BinaryPrimitives.ReadUInt64LittleEndian(stored) : 0;

    /// <summary>A session's state; false if there is none with this id.</summary>
    public static bool TryRead(WriteBatch batch, UInt128 session, out SessionState state)
    {
        Span<byte> key = stackalloc byte[StateKeyBytes];
        WriteStateKey(key, session);
        var found = batch.TryGet(TreeId.Sessions, key, out var stored);
        state = found ? SessionState.Read(stored) : default;
        return found;
    }

    /// <summary>The result that a request of a session has.</summary>
    public static bool TryReadResult(WriteBatch batch, UInt128 session, ulong sequence, out WriteResult result)
    {
        Span<byte> key = stackalloc byte[EntryKeyBytes];
        WriteEntryKey(key, session, sequence / ResultsPerEntry);
        result = default;
        return batch.TryGet(TreeId.Sessions, key, out var entry) && TryReadPlace(PlaceOf(CheckEntry(entry), sequence), out result);
    }

    /// <summary>All sessions whose last activity lies at or before a shard time. The cursor's batch must not change meanwhile.</summary>
    public static void ListIdle(WriteBatch batch, long activeMicrosecondsMax, List<(long ActiveMicroseconds, UInt128 Session)> idle)
    {
        using var cursor = batch.Cursor(TreeId.Sessions, [StateMark], [StateMark + 1]);
        while (cursor.MoveNext())
        {
            var state = SessionState.Read(cursor.Value);
            if (state.ActiveMicroseconds <= activeMicrosecondsMax)
                idle.Add((state.ActiveMicroseconds, BinaryPrimitives.ReadUInt128BigEndian(cursor.Key[1..])));
        }
    }

    /// <summary>Applies the opening of a session: its id is the etag of that change.</summary>
    public static void Open(WriteBatch batch, UInt128 session, long shardTime)
    {
        PutState(batch, session, new SessionState(1, 1, shardTime));
        PutCount(batch, Count(batch) + 1);
    }

    /// <summary>Applies the end of a session, which drops its results.</summary>
    public static void End(WriteBatch batch, UInt128 session)
    {
        if (!TryRead(batch, session, out var state))
            throw Unknown(session);
        DropBelow(batch, session, state, state.Next + ResultsPerEntry);
        Span<byte> key = stackalloc byte[StateKeyBytes];
        WriteStateKey(key, session);
        batch.Delete(TreeId.Sessions, key);
        PutCount(batch, Count(batch) - 1);
    }

    /// <summary>Applies the results of a session that a record holds.</summary>
    public static void Apply(WriteBatch batch, ReadOnlySpan<byte> results, UInt128 etagFirst, long shardTime)
    {
        var reader = new ResultsReader(results, etagFirst);
        if (!TryRead(batch, reader.Session, out var state))
            throw Unknown(reader.Session);
        var lowestOpen = Math.Max(state.LowestOpen, reader.LowestOpen);
        DropBelow(batch, reader.Session, state, lowestOpen);
        var next = state.Next;
        Span<byte> key = stackalloc byte[EntryKeyBytes], entry = stackalloc byte[EntryBytes];
        ulong? loaded = null;
        while (reader.MoveNext())
        {
            // A later request of the same record may have closed it.
            if (reader.Sequence < lowestOpen)
                continue;
            if (reader.Sequence - lowestOpen >= OpenRequestsMax)
                throw new CorruptStoreException($"Session {reader.Session} has a result for {reader.Sequence}, but {lowestOpen} is open.");
            if (reader.Sequence / ResultsPerEntry != loaded)
            {
                if (loaded is not null)
                    batch.Put(TreeId.Sessions, key, entry);
                loaded = reader.Sequence / ResultsPerEntry;
                WriteEntryKey(key, reader.Session, loaded.Value);
                Load(batch, key, entry);
            }
            WritePlace(PlaceOf(entry, reader.Sequence), reader.Result);
            next = Math.Max(next, reader.Sequence + 1);
        }
        if (loaded is not null)
            batch.Put(TreeId.Sessions, key, entry);
        PutState(batch, reader.Session, new SessionState(lowestOpen, next, shardTime));
    }

    private static CorruptStoreException Unknown(UInt128 session) => new($"A record speaks of session {session}, which is not open.");

    /// <summary>Deletes the entries that hold nothing but results below a sequence.</summary>
    private static void DropBelow(WriteBatch batch, UInt128 session, in SessionState state, ulong lowestOpen)
    {
        Span<byte> key = stackalloc byte[EntryKeyBytes];
        var end = Math.Min(lowestOpen / ResultsPerEntry, ((state.Next - 1) / ResultsPerEntry) + 1);
        for (var number = state.LowestOpen / ResultsPerEntry; number < end; number++)
        {
            WriteEntryKey(key, session, number);
            batch.Delete(TreeId.Sessions, key);
        }
    }

    private static void PutState(WriteBatch batch, UInt128 session, in SessionState state)
    {
        Span<byte> key = stackalloc byte[StateKeyBytes], value = stackalloc byte[SessionState.Bytes];
        WriteStateKey(key, session);
        state.WriteTo(value);
        batch.Put(TreeId.Sessions, key, value);
    }

    private static void PutCount(WriteBatch batch, ulong count)
    {
        Span<byte> value = stackalloc byte[sizeof(ulong)];
        BinaryPrimitives.WriteUInt64LittleEndian(value, count);
        batch.Put(TreeId.Sessions, CountKey, value);
    }

    private static void WriteStateKey(Span<byte> key, UInt128 session)
    {
        key[0] = StateMark;
        BinaryPrimitives.WriteUInt128BigEndian(key[1..], session);
    }

    private static void WriteEntryKey(Span<byte> key, UInt128 session, ulong number)
    {
        key[0] = ResultsMark;
        BinaryPrimitives.WriteUInt128BigEndian(key[1..], session);
        BinaryPrimitives.WriteUInt64BigEndian(key[StateKeyBytes..], number);
    }

    private static void Load(WriteBatch batch, ReadOnlySpan<byte> key, Span<byte> entry)
    {
        if (batch.TryGet(TreeId.Sessions, key, out var stored))
            CheckEntry(stored).CopyTo(entry);
        else
            entry.Clear();
    }

    private static ReadOnlySpan<byte> CheckEntry(ReadOnlySpan<byte> entry) => entry.Length == EntryBytes
        ? entry
        : throw new CorruptStoreException($"An entry of results has {entry.Length} bytes instead of {EntryBytes}.");

    private static Span<byte> PlaceOf(Span<byte> entry, ulong sequence) => entry.Slice((int)(sequence % ResultsPerEntry) * ResultBytes, ResultBytes);

    private static ReadOnlySpan<byte> PlaceOf(ReadOnlySpan<byte> entry, ulong sequence) =>
        entry.Slice((int)(sequence % ResultsPerEntry) * ResultBytes, ResultBytes);

    private static void WritePlace(Span<byte> place, in WriteResult result)
    {
        var condition = result.Outcome == WriteOutcome.ConditionFailed ? (uint)result.FailedCondition : 0;
        BinaryPrimitives.WriteUInt32LittleEndian(place, (condition << 2) | (uint)SessionResults.KindOf(result));
        BinaryPrimitives.WriteUInt64LittleEndian(place[4..], (ulong)(result.Etag >> 64));
        BinaryPrimitives.WriteUInt64LittleEndian(place[12..], (ulong)result.Etag);
    }

    private static bool TryReadPlace(ReadOnlySpan<byte> place, out WriteResult result)
    {
        var told = BinaryPrimitives.ReadUInt32LittleEndian(place);
        var kind = (ResultKind)(told & 3);
        var etag = new UInt128(BinaryPrimitives.ReadUInt64LittleEndian(place[4..]), BinaryPrimitives.ReadUInt64LittleEndian(place[12..]));
        result = kind == ResultKind.ConditionFailed
            ? new WriteResult(WriteOutcome.ConditionFailed, etag, (int)(told >> 2), false)
            : new WriteResult(WriteOutcome.Applied, etag, -1, kind == ResultKind.AppliedToExisting);
        return kind != ResultKind.None;
    }
}
