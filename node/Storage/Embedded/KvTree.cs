namespace KvCluster.Storage;

/// <summary>
/// A named tree of a <see cref="KvStore"/>: keys of its own, in their own order. Trees of a store share its files, and one batch can change several of them.
/// From <see cref="KvStore.CreateTreeAsync"/>, <see cref="KvStore.Tree"/> or <see cref="KvStore.TryGetTree"/>. Any thread.
/// </summary>
public sealed class KvTree
{
    private volatile bool _isDropped;

    internal KvTree(KvStore store, string name, uint number) => (Store, Name, Number) = (store, name, number);

    /// <summary>The name.</summary>
    public string Name { get; }

    internal KvStore Store { get; }

    internal uint Number { get; }

    /// <summary>Whether it is dropped, so that nothing may be written to it. Snapshots from before still have its keys.</summary>
    internal bool IsDropped
    {
        get => _isDropped;
        set => _isDropped = value;
    }

    /// <summary>The name.</summary>
    public override string ToString() => Name;
}
