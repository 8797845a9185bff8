using System.Collections.Concurrent;

namespace KvCluster.Storage.Journal;

/// <summary>
/// A piece of memory for the bodies of a store's own records, one after the other. It is used again when all of them have been dropped from the index, so that
/// a put makes next to nothing for the garbage collector. A body that somebody else was given is never dropped (<see cref="JournalEntry.Drop"/>), so its slab
/// is left to the collector. Writer executor of the store; the slabs that are free are shared by all stores.
/// </summary>
internal sealed class BodySlab
{
    /// <summary>The longest body for which a slab is begun. A longer one has memory of its own, of which less is made per operation.</summary>
    public const int BodyBytesMax = SlabBytes / 4;

    /// <summary>Some batches of small puts.</summary>
    private const int SlabBytes = 64 << 10;

    /// <summary>The size of <see cref="First"/>: the first records of a leader that nobody uses.</summary>
    public const int FirstBytes = 4 << 10;

    /// <summary>The most free slabs: 4 MiB.</summary>
    private const int FreeMax = 64;

    private static readonly ConcurrentQueue<BodySlab> _free = new();
    private static int _freeCount;
    private readonly byte[] _bytes;
    private int _taken;

    /// <summary>Bodies in it that were not dropped, and one more as long as a body may be added.</summary>
    private int _users = 1;

    private BodySlab(int bytes) => _bytes = GC.AllocateUninitializedArray<byte>(bytes);

    /// <summary>A small slab for the first bodies of a store, since a node has hundreds that write little. It is not used again.</summary>
    public static BodySlab First() => new(FirstBytes);

    /// <summary>An empty slab.</summary>
    public static BodySlab Rent()
    {
        if (!_free.TryDequeue(out var slab))
            return new BodySlab(SlabBytes);
        Interlocked.Decrement(ref _freeCount);
        (slab._taken, slab._users) = (0, 1);
        return slab;
    }

    /// <summary>What is left for further bodies, with undefined content.</summary>
    public ArraySegment<byte> Rest => new(_bytes, _taken, _bytes.Length - _taken);

    /// <summary>Whether memory is a part of it.</summary>
    public bool Has(ArraySegment<byte> memory) => memory.Array == _bytes;

    /// <summary>Takes the beginning of <see cref="Rest"/> for a body; <see cref="Release"/> returns it.</summary>
    public Memory<byte> Take(int bytes)
    {
        Invariant.Check(bytes <= Rest.Count, $"A body of {bytes} bytes was to be in a slab that has {Rest.Count} left.");
        _users++;
        _taken += bytes;
        return _bytes.AsMemory(_taken - bytes, bytes);
    }

    /// <summary>Nobody reads a body of it any more, or no body will be added.</summary>
    public void Release()
    {
        Invariant.Check(_users > 0, $"A slab of bodies was released although nobody uses it.");
        if (--_users > 0 || _bytes.Length < SlabBytes)
            return;
        if (Interlocked.Increment(ref _freeCount) <= FreeMax)
            _free.Enqueue(this);
        else
            Interlocked.Decrement(ref _freeCount);
    }
}
