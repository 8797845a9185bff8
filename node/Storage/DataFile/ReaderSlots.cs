using KvCluster.Storage.Files;

namespace KvCluster.Storage.DataFile;

/// <summary>
/// Which readers exist, and since when. Each open snapshot holds a slot, which has its own cache line, with the epoch in which the reader started. Any
/// thread takes and returns slots without a lock; the writer asks who is there.
/// </summary>
/// <remarks>
/// A reader takes its slot before it reads the published root. The writer publishes, then increases the epoch, then looks at the slots. So whatever a root
/// retired in epoch E may be reused when every slot's epoch is greater than E. Once a reader has its root it writes that to its slot, so that the writer
/// need not keep what that root does not reach. Until then it may have any root.
/// </remarks>
internal sealed unsafe class ReaderSlots
{
    /// <summary>Least number of slots: a thread begins its search at one of so many.</summary>
    public const int SlotsMin = 16;

    private const int SlotWords = 8;
    private const int UseBits = 16;

    /// <summary>Second word of a slot: the number of its uses, written by its holder.</summary>
    private const int UsesWord = 1;

    /// <summary>Third word: one more than the batch of the reader's root, and <see cref="DigestBit"/>; 0 while unknown.</summary>
    private const int RootWord = 2;
    private const ulong DigestBit = 1UL << 63;

    /// <summary>Fourth word: the ticket of a reader that is asked to end.</summary>
    private const int EndWord = 3;

    /// <summary>Fifth word: the ticket of a reader that must end because of the memory that it holds.</summary>
    private const int MemoryWord = 4;

    private readonly ulong* _slots;
    private readonly int _slotsMax;
    private int _slotsUsed;
    private ulong _epoch = 1;

    /// <summary>A bounded number of slots. The system provides memory only where they are used.</summary>
    /// <exception cref="ArgumentOutOfRangeException">There are fewer than <see cref="SlotsMin"/>.</exception>
    public ReaderSlots(int slotsMax)
    {
        ArgumentOutOfRangeException.ThrowIfLessThan(slotsMax, SlotsMin);
        _slotsMax = slotsMax;
        _slots = (ulong*)SparseMemory.Allocate(Bytes);
    }

    ~ReaderSlots() => SparseMemory.Free(_slots, Bytes);

    private nuint Bytes => (nuint)(_slotsMax + 1) * SlotWords * sizeof(ulong);

    /// <summary>Takes a slot; the ticket proves that the reader holds it. This is a full fence.</summary>
    /// <exception cref="SnapshotLimitException">The limit of open snapshots is reached.</exception>
    public int Enter(out ulong ticket)
    {
        // A thread usually finds the slot that it used last, which is in its cache.
        var start = Environment.CurrentManagedThreadId & (SlotsMin - 1);
        var epoch = Volatile.Read(ref _epoch) << UseBits;
        for (var i = 0; i < _slotsMax; i++)
        {
            var index = start + i < _slotsMax ? start + i : start + i - _slotsMax;
            ref var slot = ref _slots[index * SlotWords];
            // Two tickets of a slot in the same epoch differ, until the counter wraps around.
            ref var uses = ref _slots[(index * SlotWords) + UsesWord];
            ticket = epoch | (ushort)uses;
            if (Volatile.Read(ref slot) == 0 && Interlocked.CompareExchange(ref slot, ticket, 0) == 0)
            {
                uses++;
                if (index >= Volatile.Read(ref _slotsUsed))
                    RaiseUsed(index + 1);
                return index;
            }
        }
        throw new SnapshotLimitException(_slotsMax);
    }

    /// <summary>Returns a slot; a second call does nothing.</summary>
    public void Leave(int index, ulong ticket)
    {
        if (!Holds(index, ticket))
            return;
        // The root is cleared before another reader can take the slot. An unknown root is always safe.
        Volatile.Write(ref _slots[(index * SlotWords) + RootWord], 0);
        Interlocked.CompareExchange(ref _slots[index * SlotWords], 0, ticket);
    }

    /// <summary>Sets the root of the reader, and what it is for. Called by the holder of the slot after it has read the root.</summary>
    public void NameRoot(int index, ulong batch, bool forDigest = false) =>
        Volatile.Write(ref _slots[(index * SlotWords) + RootWord], (batch + 1) | (forDigest ? DigestBit : 0));

    /// <summary>Whether the reader with this ticket still holds the slot. Any thread.</summary>
    public bool Holds(int index, ulong ticket) => Volatile.Read(ref _slots[index * SlotWords]) == ticket;

    /// <summary>Asks a reader to end because it pins too much. Writer.</summary>
    /// <param name="index">Its slot.</param>
    /// <param name="ticket">Its ticket.</param>
    /// <param name="forMemory">What it pins is memory.</param>
    public void End(int index, ulong ticket, bool forMemory = false)
    {
        Volatile.Write(ref _slots[(index * SlotWords) + EndWord], ticket);
        if (forMemory)
            Volatile.Write(ref _slots[(index * SlotWords) + MemoryWord], ticket);
    }

    /// <summary>Whether this reader was asked to end. Any thread.</summary>
    public bool MustEnd(int index, ulong ticket) => Volatile.Read(ref _slots[(index * SlotWords) + EndWord]) == ticket;

    /// <summary>Whether this reader must end because of memory. Any thread.</summary>
    public bool HoldsTooMuchMemory(int index, ulong ticket) => Volatile.Read(ref _slots[(index * SlotWords) + MemoryWord]) == ticket;

    /// <summary>Collects all readers. Writer, after publishing.</summary>
    public void Collect(List<Reader> readers)
    {
        readers.Clear();
        Interlocked.MemoryBarrier();
        var used = Volatile.Read(ref _slotsUsed);
        for (var i = 0; i < used; i++)
        {
            var ticket = Volatile.Read(ref _slots[i * SlotWords]);
            if (ticket == 0)
                continue;
            var root = Volatile.Read(ref _slots[(i * SlotWords) + RootWord]);
            // If the slot has a new reader by now, that one came after the publication, but its root must not be taken for this one's.
            if (!Holds(i, ticket))
                root = 0;
            readers.Add(new Reader(i, ticket, ticket >> UseBits, root & ~DigestBit, (root & DigestBit) != 0));
        }
    }

    /// <summary>Ends the current epoch and returns its number. Writer, after publishing.</summary>
    public ulong NextEpoch() => Interlocked.Increment(ref _epoch) - 1;

    /// <summary>Whether there is a reader. Writer, when no new ones can come.</summary>
    public bool Any()
    {
        Interlocked.MemoryBarrier();
        return Count() > 0;
    }

    /// <summary>Number of slots in use. Any thread.</summary>
    public int Count()
    {
        var taken = 0;
        var used = Volatile.Read(ref _slotsUsed);
        for (var i = 0; i < used; i++)
            taken += Volatile.Read(ref _slots[i * SlotWords]) != 0 ? 1 : 0;
        return taken;
    }

    private void RaiseUsed(int used)
    {
        for (var seen = Volatile.Read(ref _slotsUsed); seen < used; seen = Volatile.Read(ref _slotsUsed))
            Interlocked.CompareExchange(ref _slotsUsed, used, seen);
    }

    /// <summary>An open snapshot as the writer sees it.</summary>
    /// <param name="Slot">Its slot.</param>
    /// <param name="Ticket">Its ticket.</param>
    /// <param name="Epoch">The epoch in which it was opened.</param>
    /// <param name="Root">One more than the batch of its root; 0 if unknown.</param>
    /// <param name="IsDigest">Whether it is the store's own, for a digest.</param>
    internal readonly record struct Reader(int Slot, ulong Ticket, ulong Epoch, ulong Root, bool IsDigest = false)
    {
        /// <summary>Whether it may reach a page that was created by one batch and retired by another, or in the given epoch.</summary>
        public bool Reaches(ulong epoch, ulong born, ulong left) => Epoch <= epoch && (Root == 0 || (born < Root && Root <= left));
    }
}
