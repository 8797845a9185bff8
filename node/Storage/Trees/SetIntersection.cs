using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Trees;

/// <summary>
/// Iterates over the members that all of some sets have, in order. The smallest set leads, and its members and those of the others are searched in turn,
/// usually within the leaf. One thread at a time, while the snapshot is open.
/// </summary>
/// <exception cref="CorruptStoreException">From any move: a page is not what was written.</exception>
internal sealed class SetIntersection : IDisposable
{
    /// <summary>Steps after which a move pauses: some hundred microseconds.</summary>
    private const int StepsMax = 4_096;

    private readonly SetCursor[] _cursors;

    /// <summary>Steps since the last pause, of all moves: a few thousand moves may each be short of a pause.</summary>
    private int _steps;

    /// <param name="sets">At least one; of the same snapshot.</param>
    public SetIntersection(IEnumerable<StoredSet> sets) => _cursors = [.. sets.OrderBy(static set => set.Count).Select(static set => set.Members())];

    /// <summary>The current member. Valid until the next move.</summary>
    public ReadOnlySpan<byte> Member => _cursors[0].Member;

    /// <summary>Whether the last move has found nothing yet because it took long. <see cref="Resume"/> goes on.</summary>
    public bool IsPaused { get; private set; }

    /// <summary>Goes on with a move that paused; false if there is no further common member, or it pauses again.</summary>
    public bool Resume() => Agree();

    /// <summary>Moves to the first common member not less than the given one (empty: to the first one); false if there is none, or it pauses.</summary>
    public bool Seek(ReadOnlySpan<byte> from)
    {
        foreach (var cursor in _cursors)
        {
            if (!(from.IsEmpty ? cursor.MoveNext() : cursor.Seek(from)))
                return false;
        }
        return Agree();
    }

    /// <summary>Moves to the next common member after <see cref="Seek"/> has found one; false if there is none, or it pauses.</summary>
    public bool MoveNext() => _cursors[0].MoveNext() && Agree();

    /// <inheritdoc/>
    public void Dispose()
    {
        foreach (var cursor in _cursors)
            cursor.Dispose();
    }

    // All cursors are at a member. The greatest of them is the least that can be common.
    private bool Agree()
    {
        IsPaused = false;
        for (var agreed = 1; agreed < _cursors.Length; _steps++)
        {
            if (_steps >= StepsMax)
            {
                (IsPaused, _steps) = (true, 0);
                return false;
            }
            var cursor = _cursors[agreed];
            if (!cursor.Reach(Member, out var isEqual))
                return false;
            if (isEqual)
                agreed++;
            else if (!_cursors[0].Reach(cursor.Member, out _))
                return false;
            else
                agreed = 1;
        }
        return true;
    }
}
