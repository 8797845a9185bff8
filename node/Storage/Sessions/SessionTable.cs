using System.Buffers.Binary;
using System.Runtime.CompilerServices;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.Sessions;

/// <summary>
/// The tree <c>sessions</c> (FORMAT.md, "Entries of the trees"): one entry per session, its results in entries of 64, which are written in place and deleted as
/// a whole, and the number of sessions of each owner. Sessions with a lifetime are apart from the others, which age, so that nobody who looks for an idle
/// session reads them. Only <c>RecordApplier</c> changes it, so that every replica has the same content. Whether a request was applied before is decided in
/// <see cref="ExactlyOnce"/>. Writer executor, or the opening thread.
/// </summary>
internal static class SessionTable
{
    /// <summary>How many requests of a session may be open at once, that is in flight from one client to one node.</summary>
    public const int OpenRequestsMax = 4_096;

    private const int ResultsPerEntry = 64;
    private const int ResultBytes = 24;
    private const int EntryBytes = ResultsPerEntry * ResultBytes;
    private const int StateKeyBytes = 1 + 16;
    private const int EntryKeyBytes = StateKeyBytes + sizeof(ulong);
    private const int PeerKeyBytes = 1 + sizeof(uint);
    private const int OwnerKeyBytes = 1 + sizeof(ulong);

    /// <summary>First byte of the keys of session states; <see cref="ResultsMark"/> is that of their results.</summary>
    private const byte StateMark = 1;
    private const byte ResultsMark = 2;

    /// <summary>First byte of the keys under which the sessions of a peer are counted; <see cref="OwnerMark"/> is that of the counts per owner.</summary>
    private const byte PeerMark = 3;
    private const byte OwnerMark = 4;

    /// <summary>First byte of the keys under which results of operations are kept.</summary>
    private const byte KeptMark = 6;

    /// <summary>
    /// First byte of the keys of the states of sessions with a lifetime, and the key of their number; <see cref="LifetimeOwnerMark"/> is that of the counts per
    /// owner.
    /// </summary>
    private const byte LifetimeMark = 7;
    private const byte LifetimeOwnerMark = 8;

    /// <summary>First byte of the keys under which it is recorded what is left of a session's lifetime.</summary>
    private const byte LeftMark = 9;

    private static ReadOnlySpan<byte> CountKey => [0];

    private static ReadOnlySpan<byte> LifetimeCountKey => [LifetimeMark];

    /// <summary>How many sessions without a lifetime there are.</summary>
    public static ulong Count(WriteBatch batch) => Count(batch, CountKey);

    /// <summary>How many sessions with a lifetime there are.</summary>
    public static ulong CountWithLifetime(WriteBatch batch) => Count(batch, LifetimeCountKey);

    /// <summary>How many of these an owner has.</summary>
    public static ulong CountWithLifetimeOf(WriteBatch batch, QuotaOwner owner) => Count(batch, LifetimeOwnerMark, owner.Value, sizeof(ulong));

    /// <summary>How many of them an owner has.</summary>
    public static ulong CountOf(WriteBatch batch, QuotaOwner owner) => Count(batch, OwnerMark, owner.Value, sizeof(ulong));

    /// <summary>How many the owners with the same <see cref="QuotaOwner.Peer"/> have.</summary>
    public static ulong CountOfPeer(WriteBatch batch, QuotaOwner owner) => Count(batch, PeerMark, owner.Peer, sizeof(uint));

    /// <summary>The peer with the most sessions, by its number; among equals the one with the lowest number.</summary>
    public static (uint Peer, ulong Count) GreatestPeer(WriteBatch batch)
    {
        var greatest = (Peer: 0u, Count: 0ul);
        using var cursor = batch.Cursor(TreeId.Sessions, [PeerMark], [PeerMark + 1]);
        while (cursor.MoveNext())
        {
            var count = BinaryPrimitives.ReadUInt64LittleEndian(cursor.Value);
            if (count > greatest.Count)
                greatest = (BinaryPrimitives.ReadUInt32BigEndian(cursor.Key[1..]), count);
        }
        return greatest;
    }

    /// <summary>The owner with the most sessions among those of a peer; among equals the one with the lowest number.</summary>
    public static (QuotaOwner Owner, ulong Count) GreatestOwner(WriteBatch batch, uint peer)
    {
        var greatest = (Owner: default(QuotaOwner), Count: 0ul);
        Span<byte> first = stackalloc byte[OwnerKeyBytes], last = stackalloc byte[OwnerKeyBytes + 1];
        WriteOwnerKey(first, OwnerMark, new QuotaOwner(peer, 0).Value);
        WriteOwnerKey(last, OwnerMark, new QuotaOwner(peer, uint.MaxValue).Value);
        last[^1] = 0;
        using var cursor = batch.Cursor(TreeId.Sessions, first, last);
        while (cursor.MoveNext())
        {
            var count = BinaryPrimitives.ReadUInt64LittleEndian(cursor.Value);
            if (count > greatest.Count)
                greatest = (new QuotaOwner(BinaryPrimitives.ReadUInt64BigEndian(cursor.Key[1..])), count);
        }
        return greatest;
    }

    /// <summary>An owner's session that has been idle longest, except those that must stay; null if all must stay.</summary>
    public static UInt128? LongestIdle(WriteBatch batch, QuotaOwner owner, TransactionResults staying)
    {
        (long ActiveMicroseconds, UInt128 Session)? longest = null;
        using var cursor = batch.Cursor(TreeId.Sessions, [StateMark], [StateMark + 1]);
        while (cursor.MoveNext())
        {
            var state = SessionState.Read(cursor.Value);
            if (state.Owner != owner || (longest is { } found && found.ActiveMicroseconds <= state.ActiveMicroseconds))
                continue;
            var session = BinaryPrimitives.ReadUInt128BigEndian(cursor.Key[1..]);
            if (!staying.Has(session))
                longest = (state.ActiveMicroseconds, session);
        }
        return longest?.Session;
    }

    /// <summary>A session's state; false if there is no session with this id.</summary>
    public static bool TryRead(WriteBatch batch, UInt128 session, out SessionState state)
    {
        Span<byte> key = stackalloc byte[StateKeyBytes];
        WriteStateKey(key, StateMark, session);
        var found = batch.TryGet(TreeId.Sessions, key, out var stored);
        if (!found)
        {
            key[0] = LifetimeMark;
            found = batch.TryGet(TreeId.Sessions, key, out stored);
        }
        state = found ? SessionState.Read(stored) : default;
        return found;
    }

    /// <summary>Whether a published state has a session with this id that has a lifetime. Any thread that has opened the snapshot.</summary>
    public static bool HasLifetime(in ReadSnapshot snapshot, UInt128 session)
    {
        Span<byte> key = stackalloc byte[StateKeyBytes];
        WriteStateKey(key, LifetimeMark, session);
        return snapshot.TryGet(TreeId.Sessions, key, out _);
    }

    /// <summary>The etag of the opening of a session that may own keys; false if there is no such session, or it has no lifetime.</summary>
    public static bool TryFindOwner(WriteBatch batch, UInt128 session, out Etag opened)
    {
        var found = TryRead(batch, session, out var state) && state.LifetimeMilliseconds != 0;
        opened = found ? state.Opened : Etag.None;
        return found;
    }

    /// <summary>
    /// Lists the sessions with a lifetime, each with its lifetime and what is recorded to be left of it (0: nothing is recorded). The batch must not change
    /// during this.
    /// </summary>
    public static void ListWithLifetime(WriteBatch batch, Action<UInt128, ulong, ulong> add)
    {
        using var cursor = batch.Cursor(TreeId.Sessions, [LifetimeMark, 0], [LifetimeMark + 1]);
        using var rests = batch.Cursor(TreeId.Sessions, [LeftMark], [LeftMark + 1]);
        // Both cursors are in the order of the sessions' ids, and each rest is that of a session.
        var hasRest = rests.MoveNext();
        while (cursor.MoveNext())
        {
            var left = 0ul;
            if (hasRest && rests.Key[1..].SequenceEqual(cursor.Key[1..]))
            {
                left = BinaryPrimitives.ReadUInt64LittleEndian(rests.Value);
                hasRest = rests.MoveNext();
            }
            add(BinaryPrimitives.ReadUInt128BigEndian(cursor.Key[1..]), SessionState.Read(cursor.Value).LifetimeMilliseconds, left);
        }
    }

    /// <summary>The result of a sequence of a session, and the digest of its request.</summary>
    public static bool TryReadResult(WriteBatch batch, UInt128 session, ulong sequence, out WriteResult result, out uint digest)
    {
        Span<byte> key = stackalloc byte[EntryKeyBytes];
        WriteEntryKey(key, session, sequence / ResultsPerEntry);
        (result, digest) = (default, 0);
        if (!batch.TryGet(TreeId.Sessions, key, out var entry) || !TryReadPlace(PlaceOf(CheckEntry(entry), sequence), out var stored, out var etag, out digest))
            return false;
        if (stored.Kind != ResultKind.WithResults)
        {
            result = stored.At(etag);
            return true;
        }
        WriteKeptKey(key, session, sequence);
        if (!batch.TryGet(TreeId.Sessions, key, out var kept))
            throw new CorruptStoreException("What is kept of a request's results is missing.");
        result = StoredResult.ReadKept(kept, etag);
        return true;
    }

    /// <summary>All sessions that were last active at or before a shard time. The batch must not change during this.</summary>
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

    /// <summary>Verifies that an entry of the tree has a key and a value as this class writes them.</summary>
    /// <exception cref="CorruptStoreException">The key or the value is not as this class writes them.</exception>
    public static void Check(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value)
    {
        if (key.Length == EntryKeyBytes && key[0] == KeptMark)
        {
            _ = StoredResult.ReadKept(value, default);
            return;
        }
        var bytes = (key.IsEmpty ? -1 : key[0], key.Length) switch
        {
            (0 or LifetimeMark, 1) or (PeerMark, PeerKeyBytes) or (OwnerMark or LifetimeOwnerMark, OwnerKeyBytes) => sizeof(ulong),
            (StateMark or LifetimeMark, StateKeyBytes) => SessionState.Bytes,
            (LeftMark, StateKeyBytes) => sizeof(ulong),
            (ResultsMark, EntryKeyBytes) => EntryBytes,
            _ => throw new CorruptStoreException($"A key of {key.Length} bytes is none of a session, its results or a count of sessions."),
        };
        if (value.Length != bytes)
            throw new CorruptStoreException($"An entry of the sessions has {value.Length} bytes instead of {bytes}.");
    }

    /// <summary>Applies the opening of a session.</summary>
    /// <param name="batch">The batch to change.</param>
    /// <param name="session">Its id.</param>
    /// <param name="owner">The owner in whose share it counts.</param>
    /// <param name="lifetimeMilliseconds">How long it lives without a KeepAlive; 0 = it has no lifetime.</param>
    /// <param name="opened">The etag of this operation.</param>
    /// <param name="shardTime">The record's shard time.</param>
    public static void Open(WriteBatch batch, UInt128 session, QuotaOwner owner, ulong lifetimeMilliseconds, Etag opened, long shardTime)
    {
        if (TryRead(batch, session, out _))
            throw new CorruptStoreException("A record opens a session that is already open.");
        var state = new SessionState(1, 1, shardTime, owner, opened, lifetimeMilliseconds);
        PutState(batch, session, state);
        ChangeCounts(batch, state, by: 1);
    }

    /// <summary>Applies the end of a session, which drops its results. The keys that it owned are gone by then.</summary>
    public static void End(WriteBatch batch, UInt128 session)
    {
        if (!TryRead(batch, session, out var state))
            throw Unknown();
        DropBelow(batch, session, state, state.Next + ResultsPerEntry);
        Span<byte> key = stackalloc byte[StateKeyBytes];
        WriteStateKey(key, MarkOf(state), session);
        batch.Delete(TreeId.Sessions, key);
        ChangeCounts(batch, state, by: -1);
        if (MarkOf(state) != LifetimeMark)
            return;
        OwnedKeys.End(batch, state.Opened);
        key[0] = LeftMark;
        batch.Delete(TreeId.Sessions, key);
    }

    /// <summary>Applies what is left of a session's lifetime; 0: nothing is recorded of it any more.</summary>
    public static void SetLeft(WriteBatch batch, UInt128 session, ulong leftMilliseconds)
    {
        if (!TryRead(batch, session, out var state) || MarkOf(state) != LifetimeMark)
            throw Unknown();
        Span<byte> key = stackalloc byte[StateKeyBytes], value = stackalloc byte[sizeof(ulong)];
        WriteStateKey(key, LeftMark, session);
        BinaryPrimitives.WriteUInt64LittleEndian(value, leftMilliseconds);
        if (leftMilliseconds == 0)
            batch.Delete(TreeId.Sessions, key);
        else
            batch.Put(TreeId.Sessions, key, value);
    }

    /// <summary>Applies the results of a session in a record.</summary>
    /// <remarks>An entry is loaded or cleared before anything of it is written.</remarks>
    [SkipLocalsInit]
    public static void Apply(WriteBatch batch, ReadOnlySpan<byte> results, Etag etagFirst, long shardTime)
    {
        var reader = new ResultsReader(results, etagFirst);
        if (!TryRead(batch, reader.Session, out var state))
            throw Unknown();
        var lowestOpen = Math.Max(state.LowestOpen, reader.LowestOpen);
        DropBelow(batch, reader.Session, state, lowestOpen);
        var next = state.Next;
        Span<byte> key = stackalloc byte[EntryKeyBytes], keptKey = stackalloc byte[EntryKeyBytes], entry = stackalloc byte[EntryBytes];
        ulong? loaded = null;
        while (reader.MoveNext())
        {
            // A later request of the same record may have closed this sequence.
            if (reader.Sequence < lowestOpen)
                continue;
            if (reader.Sequence - lowestOpen >= OpenRequestsMax)
                throw new CorruptStoreException(
                    $"A session has a result for sequence {reader.Sequence}, which is too far above its lowest open sequence {lowestOpen}.");
            if (reader.Sequence / ResultsPerEntry != loaded)
            {
                if (loaded is not null)
                    batch.Put(TreeId.Sessions, key, entry);
                loaded = reader.Sequence / ResultsPerEntry;
                WriteEntryKey(key, reader.Session, loaded.Value);
                Load(batch, key, entry);
            }
            WritePlace(PlaceOf(entry, reader.Sequence), reader.Result, reader.Digest);
            if (!reader.Kept.IsEmpty)
            {
                WriteKeptKey(keptKey, reader.Session, reader.Sequence);
                batch.Put(TreeId.Sessions, keptKey, reader.Kept);
            }
            next = Math.Max(next, reader.Sequence + 1);
        }
        if (loaded is not null)
            batch.Put(TreeId.Sessions, key, entry);
        PutState(batch, reader.Session, state with { LowestOpen = lowestOpen, Next = next, ActiveMicroseconds = shardTime });
    }

    // The session's id is its caller's secret, so it is not in the message, which goes into logs.
    private static CorruptStoreException Unknown() => new("A record refers to a session that is not open.");

    /// <summary>Deletes the entries that hold only results below a sequence, and what is kept with these results.</summary>
    private static void DropBelow(WriteBatch batch, UInt128 session, in SessionState state, ulong lowestOpen)
    {
        Span<byte> key = stackalloc byte[EntryKeyBytes], from = stackalloc byte[EntryKeyBytes], to = stackalloc byte[EntryKeyBytes];
        var end = Math.Min(lowestOpen / ResultsPerEntry, ((state.Next - 1) / ResultsPerEntry) + 1);
        for (var number = state.LowestOpen / ResultsPerEntry; number < end; number++)
        {
            WriteEntryKey(key, session, number);
            if (batch.TryGet(TreeId.Sessions, key, out var entry) && HasKept(CheckEntry(entry)))
            {
                WriteKeptKey(from, session, number * ResultsPerEntry);
                WriteKeptKey(to, session, (number + 1) * ResultsPerEntry);
                batch.DeleteRange(TreeId.Sessions, from, to);
            }
            batch.Delete(TreeId.Sessions, key);
        }
    }

    private static bool HasKept(ReadOnlySpan<byte> entry)
    {
        for (; !entry.IsEmpty; entry = entry[ResultBytes..])
        {
            if ((ResultKind)(BinaryPrimitives.ReadUInt32LittleEndian(entry) & StoredResult.KindMask) == ResultKind.WithResults)
                return true;
        }
        return false;
    }

    private static void PutState(WriteBatch batch, UInt128 session, in SessionState state)
    {
        Span<byte> key = stackalloc byte[StateKeyBytes], value = stackalloc byte[SessionState.Bytes];
        WriteStateKey(key, MarkOf(state), session);
        state.WriteTo(value);
        batch.Put(TreeId.Sessions, key, value);
    }

    private static ulong Count(WriteBatch batch, ReadOnlySpan<byte> key) =>
        batch.TryGet(TreeId.Sessions, key, out var stored) ? BinaryPrimitives.ReadUInt64LittleEndian(stored) : 0;

    private static ulong Count(WriteBatch batch, byte mark, ulong number, int numberBytes)
    {
        Span<byte> key = stackalloc byte[OwnerKeyBytes];
        key = numberBytes == sizeof(uint) ? key[..PeerKeyBytes] : key;
        WriteOwnerKey(key, mark, number);
        return Count(batch, key);
    }

    private static byte MarkOf(in SessionState state) => state.LifetimeMilliseconds == 0 ? StateMark : LifetimeMark;

    private static void ChangeCounts(WriteBatch batch, in SessionState state, long by)
    {
        Span<byte> key = stackalloc byte[OwnerKeyBytes];
        var owner = state.Owner;
        if (MarkOf(state) == LifetimeMark)
        {
            var ofOwnerWithLifetime = CountWithLifetimeOf(batch, owner);
            PutCount(batch, LifetimeCountKey, CountWithLifetime(batch) + (ulong)by);
            WriteOwnerKey(key, LifetimeOwnerMark, owner.Value);
            PutCount(batch, key, ofOwnerWithLifetime + (ulong)by);
            return;
        }
        PutCount(batch, CountKey, Count(batch) + (ulong)by);
        var (ofPeer, ofOwner) = (CountOfPeer(batch, owner), CountOf(batch, owner));
        WriteOwnerKey(key[..PeerKeyBytes], PeerMark, owner.Peer);
        PutCount(batch, key[..PeerKeyBytes], ofPeer + (ulong)by);
        WriteOwnerKey(key, OwnerMark, owner.Value);
        PutCount(batch, key, ofOwner + (ulong)by);
    }

    // Only owners with sessions have a count.
    private static void PutCount(WriteBatch batch, ReadOnlySpan<byte> key, ulong count)
    {
        if (count == 0 && key.Length > 1)
        {
            batch.Delete(TreeId.Sessions, key);
            return;
        }
        Span<byte> value = stackalloc byte[sizeof(ulong)];
        BinaryPrimitives.WriteUInt64LittleEndian(value, count);
        batch.Put(TreeId.Sessions, key, value);
    }

    private static void WriteOwnerKey(Span<byte> key, byte mark, ulong number)
    {
        key[0] = mark;
        if (key.Length == PeerKeyBytes)
            BinaryPrimitives.WriteUInt32BigEndian(key[1..], (uint)number);
        else
            BinaryPrimitives.WriteUInt64BigEndian(key[1..], number);
    }

    private static void WriteStateKey(Span<byte> key, byte mark, UInt128 session)
    {
        key[0] = mark;
        BinaryPrimitives.WriteUInt128BigEndian(key[1..], session);
    }

    private static void WriteEntryKey(Span<byte> key, UInt128 session, ulong number) => WriteNumberedKey(key, ResultsMark, session, number);

    private static void WriteKeptKey(Span<byte> key, UInt128 session, ulong sequence) => WriteNumberedKey(key, KeptMark, session, sequence);

    private static void WriteNumberedKey(Span<byte> key, byte mark, UInt128 session, ulong number)
    {
        key[0] = mark;
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
        : throw new CorruptStoreException($"An entry of session results has {entry.Length} bytes instead of {EntryBytes}.");

    private static Span<byte> PlaceOf(Span<byte> entry, ulong sequence) => entry.Slice((int)(sequence % ResultsPerEntry) * ResultBytes, ResultBytes);

    private static ReadOnlySpan<byte> PlaceOf(ReadOnlySpan<byte> entry, ulong sequence) =>
        entry.Slice((int)(sequence % ResultsPerEntry) * ResultBytes, ResultBytes);

    private static void WritePlace(Span<byte> place, in WriteResult result, uint digest)
    {
        var stored = StoredResult.Of(result);
        BinaryPrimitives.WriteUInt32LittleEndian(place, (stored.Number << StoredResult.KindBits) | (uint)stored.Kind);
        EtagBytes.Write(place[4..], result.Etag);
        BinaryPrimitives.WriteUInt32LittleEndian(place[20..], digest);
    }

    private static bool TryReadPlace(ReadOnlySpan<byte> place, out StoredResult stored, out Etag etag, out uint digest)
    {
        var told = BinaryPrimitives.ReadUInt32LittleEndian(place);
        stored = new StoredResult((ResultKind)(told & StoredResult.KindMask), told >> StoredResult.KindBits);
        etag = EtagBytes.Read(place[4..]);
        digest = BinaryPrimitives.ReadUInt32LittleEndian(place[20..]);
        return stored.Kind != ResultKind.None;
    }
}
