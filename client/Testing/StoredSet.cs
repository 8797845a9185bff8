using System.Collections.Immutable;
using KvCluster.Client;

namespace KvCluster.Testing;

/// <summary>A set with its members, at least one. Immutable; its bytes are its own.</summary>
/// <param name="Key">The key of the set.</param>
/// <param name="Members">The members in order.</param>
internal sealed record StoredSet(KvKey Key, ImmutableSortedSet<KvKey> Members)
{
    /// <summary>In the order of their keys.</summary>
    public static readonly IComparer<StoredSet> Order = Comparer<StoredSet>.Create(static (left, right) => left.Key.CompareTo(right.Key));

    /// <summary>What stands for a key in searches.</summary>
    public static StoredSet At(KvKey key) => new(key, ImmutableSortedSet<KvKey>.Empty);
}
