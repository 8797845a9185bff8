using System.Runtime.InteropServices;

namespace KvCluster.Storage.DataFile;

/// <summary>
/// Who reads since when: each open snapshot holds a slot, a cache line of its own, with the epoch at which it came. Any thread takes and gives back
/// slots without a lock; the writer asks for the oldest.
/// </summary>
/// <remarks>
/// A reader takes its slot before it reads the published root; the writer publishes, then raises the epoch, then looks at the slots. So what a root let go at
/// epoch E may be reused when every slot's epoch is greater than E. Once a reader has its root it names it in its slot, so that the writer need not keep what that root
/// does not reach; until then it may have any.
/// </remarks>
internal sealed unsafe class ReaderSlots
{
    private const int SlotWords = 8;
    private const int UseBits = 16;

    /// <summary>Second word of a slot: counts its uses; its holder writes it.</summary>
    private const int UsesWord = 1;

    /// <summary>Third word: one more than the batch of the root that the reader has; 0: not known yet.</summary>
    private const int RootWord = 2;

    /// <summary>Fourth word: the ticket of the reader that is to end.</summary>
    private const int EndWord = 3;

    private readonly ulong* _slots;
    private readonly int _slotsMax;
    private int _slotsUsed;
    private ulong _epoch = 1;

    /// <summary>A bounded number of slots; the system gives memory only where they are used.</summary>
    public ReaderSlots(int slotsMax)
    {
        _slotsMax = slotsMax;
        _slots = (ulong*)NativeMemory.AllocZeroed((nuint)(slotsMax + 1) * SlotWords, sizeof(ulong));
    }

    ~ReaderSlots() => NativeMemory.Free(_slots);

    /// <summary>Takes a slot, of which the ticket is the proof. A full fence.</summary>
    /// <exception cref="SnapshotLimitException">As many are open as may be.</exception>
    public int Enter(out ulong ticket)
    {
        // Threads mostly find the slot that they had last, and it is in their cache.
        var start = Environment.CurrentManagedThreadId & 15;
        var epoch = Volatile.Read(ref _epoch) << UseBits;
        for (var i = 0; i < _slotsMax; i++)
        {
            var index = start + i < _slotsMax ? start + i : start + i - _slotsMax;
            ref var slot = ref _slots[index * SlotWords];
            // So no two tickets of a slot in one epoch are soon the same.
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

    /// <summary>Gives a slot back; a second time does nothing.</summary>
    public void Leave(int index, ulong ticket)
    {
        if (!Holds(index, ticket))
            return;
        // Before another takes the slot. Not known is always right.
        Volatile.Write(ref _slots[(index * SlotWords) + RootWord], 0);
        Interlocked.CompareExchange(ref _slots[index * SlotWords], 0, ticket);
    }

    /// <summary>Names the root that the reader has. Its holder, after it has read it.</summary>
    public void NameRoot(int index, ulong batch) => Volatile.Write(ref _slots[(index * SlotWords) + RootWord], batch + 1);

    /// <summary>Whether a slot is still that reader's. Any thread.</summary>
    public bool Holds(int index, ulong ticket) => Volatile.Read(ref _slots[index * SlotWords]) == ticket;

    /// <summary>Asks a reader to end: it pins too much. The writer.</summary>
    public void End(int index, ulong ticket) => Volatile.Write(ref _slots[(index * SlotWords) + EndWord], ticket);

    /// <summary>Whether it was asked to. Any thread.</summary>
    public bool MustEnd(int index, ulong ticket) => Volatile.Read(ref _slots[(index * SlotWords) + EndWord]) == ticket;

    /// <summary>All readers, each kind of them once. The writer, after what it published.</summary>
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
            // Another one's by now: it came after what was published, but its root is not to be taken for this one's.
            if (!Holds(i, ticket))
                root = 0;
            readers.Add(new Reader(i, ticket, ticket >> UseBits, root));
        }
    }

    /// <summary>Ends an epoch and gives its number. The writer, after what it published.</summary>
    public ulong NextEpoch() => Interlocked.Increment(ref _epoch) - 1;

    /// <summary>The oldest reader's epoch; the greatest number without readers. The writer.</summary>
    public ulong Oldest()
    {
        Interlocked.MemoryBarrier();
        var oldest = ulong.MaxValue;
        var used = Volatile.Read(ref _slotsUsed);
        for (var i = 0; i < used; i++)
        {
            var ticket = Volatile.Read(ref _slots[i * SlotWords]);
            if (ticket != 0)
                oldest = Math.Min(oldest, ticket >> UseBits);
        }
        return oldest;
    }

    /// <summary>Slots taken now. Any thread.</summary>
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
    /// <param name="Epoch">When it came.</param>
    /// <param name="Root">One more than the batch of its root; 0: not known.</param>
    internal readonly record struct Reader(int Slot, ulong Ticket, ulong Epoch, ulong Root)
    {
        /// <summary>Whether it may reach a page that came with one batch and left with another, or in the given epoch.</summary>
        public bool Reaches(ulong epoch, ulong born, ulong left) => Epoch <= epoch && (Root == 0 || (born < Root && Root <= left));
    }
}
