using KvCluster.Storage.Encoding;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage;

/// <summary>
/// The set of a key as a <see cref="KvSnapshot"/> has it: members of bytes, in their order, each once. A key without a set has an empty one. Any thread, also
/// several at a time. After the snapshot was disposed of, every member throws an <see cref="ObjectDisposedException"/>.
/// </summary>
/// <exception cref="KvStoreDamagedException">From any read: what is on the disk is not what was written.</exception>
public readonly struct KvSet
{
    private readonly KvSnapshot? _snapshot;
    private readonly StoredSet _stored;

    internal KvSet(KvSnapshot snapshot, StoredSet stored) => (_snapshot, _stored) = (snapshot, stored);

    /// <summary>How many members it has. Known without reading them.</summary>
    public long Count
    {
        get
        {
            _snapshot?.Check();
            return (long)_stored.Count;
        }
    }

    /// <summary>
    /// The etag of its last change; <see cref="Etag.None"/> if it is empty. What changed nothing, such as adding a member that was there, is not a change of
    /// the set.
    /// </summary>
    public Etag Etag
    {
        get
        {
            _snapshot?.Check();
            return _stored.Etag;
        }
    }

    /// <summary>Whether the set has a member. Takes one search, however large the set is.</summary>
    /// <exception cref="ArgumentOutOfRangeException">The member is empty or too long.</exception>
    public bool Contains(ReadOnlySpan<byte> member)
    {
        CheckMember(member);
        if (Count == 0)
            return false;
        try
        {
            return _stored.Contains(member);
        }
        catch (CorruptStoreException damage)
        {
            throw StoreErrors.DamagedBy(damage);
        }
    }

    /// <summary>The members in order, to be iterated over once with <c>foreach</c>.</summary>
    /// <param name="from">The first one, inclusive, which need not be a member; empty: from the beginning.</param>
    /// <exception cref="ArgumentOutOfRangeException">The first one is more than one byte longer than a member may be.</exception>
    public KvMemberScan Members(ReadOnlySpan<byte> from = default)
    {
        var cursor = OpenCursor();
        if (from.IsEmpty)
            return new KvMemberScan(cursor, found: null);
        try
        {
            return new KvMemberScan(cursor, cursor.Seek(from));
        }
        catch
        {
            cursor.Dispose();
            throw;
        }
    }

    /// <summary>A cursor over the members, which moves in both directions. The caller disposes of it.</summary>
    public KvMemberCursor OpenCursor() => new(_snapshot, Count == 0 ? null : _stored.Members());

    /// <exception cref="ArgumentOutOfRangeException">The member is empty or too long.</exception>
    internal static void CheckMember(ReadOnlySpan<byte> member)
    {
        if (member.Length is 0 or > KvStoreLimits.MemberBytesMax)
            throw new ArgumentOutOfRangeException(nameof(member), member.Length, $"A member has 1 to {KvStoreLimits.MemberBytesMax} bytes.");
    }

    /// <exception cref="ArgumentOutOfRangeException">The place is empty or too long.</exception>
    internal static void CheckPlace(ReadOnlySpan<byte> member)
    {
        if (member.Length is 0 or > KvLimits.MemberBoundBytesMax)
            throw new ArgumentOutOfRangeException(
                nameof(member), member.Length, $"A place to seek in a set has 1 to {KvLimits.MemberBoundBytesMax} bytes: a member and one more.");
    }
}

/// <summary>Members to be iterated over once with <c>foreach</c>, which disposes of the cursor.</summary>
public readonly struct KvMemberScan
{
    private readonly KvMemberCursor _cursor;
    private readonly bool? _found;

    /// <param name="cursor">The cursor, which belongs to the scan.</param>
    /// <param name="found">Whether the cursor is at the first member of the scan, or at the end; null if it has not been moved.</param>
    internal KvMemberScan(KvMemberCursor cursor, bool? found) => (_cursor, _found) = (cursor, found);

    /// <summary>Called by <c>foreach</c>.</summary>
    public Enumerator GetEnumerator() => new(_cursor, _found);

    /// <summary>Used by <c>foreach</c>.</summary>
    public struct Enumerator : IDisposable
    {
        private readonly KvMemberCursor _cursor;
        private bool? _found;

        internal Enumerator(KvMemberCursor cursor, bool? found) => (_cursor, _found) = (cursor, found);

        /// <summary>The member. Valid until the next one.</summary>
        public readonly ReadOnlySpan<byte> Current => _cursor.Member;

        /// <summary>Moves on; false at the end.</summary>
        public bool MoveNext()
        {
            if (_found is not { } found)
                return _cursor.MoveNext();
            _found = null;
            return found;
        }

        /// <summary>Ends the cursor.</summary>
        public readonly void Dispose() => _cursor.Dispose();
    }
}
