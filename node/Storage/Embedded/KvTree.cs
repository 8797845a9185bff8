namespace KvCluster.Storage;

/// <summary>
/// A named tree of a <see cref="KvStore"/>: keys of its own, in their own order, each with a value, a set, or both. Trees of a store share its files, and one
/// batch can change several of them. From <see cref="KvStore.CreateTreeAsync"/>, <see cref="KvStore.Tree"/> or <see cref="KvStore.TryGetTree"/>. Any thread.
/// </summary>
public sealed class KvTree
{
    private volatile bool _isDropped;

    /// <summary>How many calls hold it.</summary>
    private int _holders;

    internal KvTree(KvStore store, string name, uint number) => (Store, Name, Number) = (store, name, number);

    /// <summary>The name.</summary>
    public string Name { get; }

    internal KvStore Store { get; }

    internal uint Number { get; }

    /// <summary>The name.</summary>
    public override string ToString() => Name;

    /// <exception cref="ArgumentException">The tree belongs to another store.</exception>
    internal void ThrowUnlessOf(KvStore store, string parameter)
    {
        if (Store != store)
            throw new ArgumentException($"The tree '{Name}' belongs to another store.", parameter);
    }

    /// <exception cref="KvTreeNotFoundException">The tree was dropped.</exception>
    internal void ThrowIfDropped()
    {
        if (_isDropped)
            throw Dropped();
    }

    /// <summary>
    /// Keeps a drop from beginning until <see cref="Release"/>, for as long as it takes to put a batch into the store's queue. So a batch is in the queue
    /// before the request that drops one of its trees, and the keys that it puts are removed with the others; or it is refused.
    /// </summary>
    /// <exception cref="KvTreeNotFoundException">The tree was dropped, and is not held.</exception>
    internal void Hold()
    {
        // The increment is a full fence: either this call sees the drop, or the drop sees this holder.
        Interlocked.Increment(ref _holders);
        if (!_isDropped)
            return;
        // This throws even if the drop fails meanwhile: a caller that gets no exception would release the tree again.
        Release();
        throw Dropped();
    }

    /// <summary>Ends a <see cref="Hold"/>.</summary>
    internal void Release()
    {
        var holders = Interlocked.Decrement(ref _holders);
        Invariant.Check(holders >= 0, $"The tree '{Name}' was released more often than it was held.");
    }

    /// <summary>Refuses batches from here on, and waits for those that are just put into the queue. Snapshots from before still have the tree's keys.</summary>
    internal void BeginDrop()
    {
        _isDropped = true;
        Interlocked.MemoryBarrier();
        for (var spinner = new SpinWait(); Volatile.Read(ref _holders) > 0;)
            spinner.SpinOnce();
    }

    /// <summary>The drop has failed, and the tree can be used as before.</summary>
    internal void CancelDrop() => _isDropped = false;

    private KvTreeNotFoundException Dropped() => new(Name, $"The tree '{Name}' was dropped. Nothing was changed.");
}
