using KvCluster.Client;
using Microsoft.Extensions.Caching.Memory;

namespace KvCluster.Extensions.Caching;

/// <summary>
/// The entries of the hybrid cache in the memory of this process, without those that the cluster has changed. An entry may change between its read or put and
/// the moment when it is kept here, so whoever keeps one notes before how many changes there were. Any thread.
/// </summary>
/// <param name="bytesMax">Of all entries.</param>
internal sealed class LocalLevel(long bytesMax) : IWatched
{
    /// <summary>Changes are counted by the hash of their keys. One of another key with the same count only costs that an entry is not kept.</summary>
    private const int SlotCount = 1_024;

    /// <summary>What an entry needs besides its bytes, about.</summary>
    private const int EntryBytes = 300;

    // It has nothing that must be disposed.
    private readonly MemoryCache _entries = new(new MemoryCacheOptions { SizeLimit = bytesMax });
    private readonly Slot[] _slots = [.. Enumerable.Range(0, SlotCount).Select(static _ => new Slot())];

    /// <summary>The entry of a key.</summary>
    public HybridEntry? Find(KvKey key) => _entries.TryGetValue(key, out HybridEntry? entry) ? entry : null;

    /// <summary>To be noted before an entry is read or put.</summary>
    public long MarkOf(KvKey key)
    {
        var slot = SlotOf(key);
        lock (slot.Gate)
            return slot.Changes;
    }

    /// <summary>Keeps an entry, unless its key may have changed meanwhile.</summary>
    /// <param name="key">The key.</param>
    /// <param name="mark">What was noted.</param>
    /// <param name="entry">The entry.</param>
    /// <param name="life">How long it stays at most.</param>
    /// <returns>Whether it is kept.</returns>
    public bool Keep(KvKey key, long mark, HybridEntry entry, TimeSpan life)
    {
        if (life <= TimeSpan.Zero)
            return false;
        var slot = SlotOf(key);
        lock (slot.Gate)
        {
            // The only change may be the one that made the entry.
            if (slot.Changes != mark && (slot.Changes != mark + 1 || slot.Last != entry.Etag))
                return false;
            _entries.Set(
                key, entry, new MemoryCacheEntryOptions { AbsoluteExpirationRelativeToNow = life, Size = EntryBytes + key.Length + entry.Payload.Length });
            return true;
        }
    }

    /// <summary>Removes an entry, unless it was made by the change.</summary>
    public void Change(KvKey key, Etag change)
    {
        var slot = SlotOf(key);
        lock (slot.Gate)
        {
            slot.Changes++;
            slot.Last = change;
            // What is in memory only has no etag that would tell one from another.
            if (Find(key) is { } entry && (entry.Etag != change || change == Etag.None))
                _entries.Remove(key);
        }
    }

    /// <summary>Removes an entry in any case.</summary>
    public void Drop(KvKey key)
    {
        var slot = SlotOf(key);
        lock (slot.Gate)
        {
            slot.Changes += 2;
            _entries.Remove(key);
        }
    }

    public void Apply(KvEvent change)
    {
        switch (change.Kind)
        {
            case KvEventKind.Put or KvEventKind.Delete:
                Change(change.Key, change.Etag);
                break;
            case KvEventKind.DeleteRange or KvEventKind.Unknown:
                Clear();
                break;
        }
    }

    public void Forget(KvRange range) => Clear();

    private void Clear()
    {
        foreach (var slot in _slots)
        {
            // More than the one change that may have made an entry.
            lock (slot.Gate)
                slot.Changes += 2;
        }
        _entries.Clear();
    }

    private Slot SlotOf(KvKey key) => _slots[(uint)key.GetHashCode() % SlotCount];

    private sealed class Slot
    {
        public Lock Gate { get; } = new();

        public long Changes { get; set; }

        public Etag Last { get; set; }
    }
}
