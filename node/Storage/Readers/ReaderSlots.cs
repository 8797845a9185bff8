using System.Runtime.InteropServices;

namespace KvCluster.Storage.Pages;

/// <summary>
/// Who reads since when: each open snapshot holds a slot, a cache line of its own, with the epoch at which it came. Any thread takes and gives back
/// slots without a lock; the writer asks for the oldest.
/// </summary>
/// <remarks>
/// A reader takes its slot before it reads the published root; the writer publishes, then raises the epoch, then looks at the slots. So what a root let go at
/// epoch E may be reused when every slot's epoch is greater than E.
/// </remarks>
internal sealed unsafe class ReaderSlots
{
    private const int SlotWords = 8;
    private const int UseBits = 16;

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
            // The second word counts the slot's uses; its holder writes it. So no two tickets of a slot in one epoch are soon the same.
            ref var uses = ref _slots[(index * SlotWords) + 1];
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
    public void Leave(int index, ulong ticket) => Interlocked.CompareExchange(ref _slots[index * SlotWords], 0, ticket);

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
}
