using KvCluster.Storage.Encoding;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage;

/// <summary>
/// Moves over the members of a set in their order, in both directions. Used by one thread at a time and disposed of before its snapshot. It starts outside of
/// the members: <see cref="MoveNext"/> goes to the first one, <see cref="MovePrevious"/> to the last.
/// </summary>
/// <remarks>
/// A read that finds damage throws a <see cref="KvStoreDamagedException"/>. After the snapshot was disposed of, every member throws an
/// <see cref="ObjectDisposedException"/>.
/// </remarks>
public sealed class KvMemberCursor : IDisposable
{
    private readonly KvSnapshot? _snapshot;
    private readonly SetCursor? _cursor;
    private bool _isDisposed;

    /// <param name="snapshot">Null for a set that is from no snapshot.</param>
    /// <param name="cursor">Null for a set without members.</param>
    internal KvMemberCursor(KvSnapshot? snapshot, SetCursor? cursor) => (_snapshot, _cursor) = (snapshot, cursor);

    /// <summary>The member. Valid until the cursor moves.</summary>
    /// <exception cref="InvalidOperationException">The cursor is not at a member.</exception>
    public ReadOnlySpan<byte> Member
    {
        get
        {
            Check();
            try
            {
                return _cursor is null ? throw new InvalidOperationException("The set has no members.") : _cursor.Member;
            }
            catch (CorruptStoreException damage)
            {
                throw StoreErrors.DamagedBy(damage);
            }
        }
    }

    /// <summary>Moves to the next member; false at the end. From there <see cref="MovePrevious"/> moves back to the last one.</summary>
    public bool MoveNext()
    {
        Check();
        try
        {
            return _cursor?.MoveNext() ?? false;
        }
        catch (CorruptStoreException damage)
        {
            throw StoreErrors.DamagedBy(damage);
        }
    }

    /// <summary>Moves to the previous member; false before the first one. From there <see cref="MoveNext"/> moves to the first one.</summary>
    public bool MovePrevious()
    {
        Check();
        try
        {
            return _cursor?.MovePrevious() ?? false;
        }
        catch (CorruptStoreException damage)
        {
            throw StoreErrors.DamagedBy(damage);
        }
    }

    /// <summary>
    /// Moves to this member, or if the set does not have it to the first one after it; false if there is none. <see cref="MovePrevious"/> then moves to the
    /// last one.
    /// </summary>
    /// <exception cref="ArgumentOutOfRangeException">The member is empty or too long.</exception>
    public bool Seek(ReadOnlySpan<byte> member)
    {
        Check();
        KvSet.CheckPlace(member);
        try
        {
            return _cursor?.Seek(member) ?? false;
        }
        catch (CorruptStoreException damage)
        {
            throw StoreErrors.DamagedBy(damage);
        }
    }

    /// <summary>Ends it. A second call does nothing.</summary>
    public void Dispose()
    {
        _isDisposed = true;
        _cursor?.Dispose();
    }

    private void Check()
    {
        ObjectDisposedException.ThrowIf(_isDisposed, this);
        _snapshot?.Check();
    }
}
