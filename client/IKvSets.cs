namespace KvCluster.Client;

/// <summary>The calls of <see cref="KvSets"/>. Programs use this interface and do not implement it, as they do with <see cref="IKvClient"/>.</summary>
public interface IKvSets
{
    /// <inheritdoc cref="KvSets.AddAsync"/>
    ValueTask<SetChangeResult> AddAsync(
        KvKey key, IEnumerable<KvKey> members, KvChangeOptions? options = null, CancellationToken cancellationToken = default);

    /// <inheritdoc cref="KvSets.RemoveAsync"/>
    ValueTask<SetChangeResult> RemoveAsync(
        KvKey key, IEnumerable<KvKey> members, KvChangeOptions? options = null, CancellationToken cancellationToken = default);

    /// <inheritdoc cref="KvSets.RemoveAllAsync"/>
    ValueTask<SetChangeResult> RemoveAllAsync(KvKey key, KvChangeOptions? options = null, CancellationToken cancellationToken = default);

    /// <inheritdoc cref="KvSets.CountAsync"/>
    ValueTask<ulong> CountAsync(KvKey key, KvReadOptions? options = null, CancellationToken cancellationToken = default);

    /// <inheritdoc cref="KvSets.ScanAsync"/>
    IAsyncEnumerable<KvKey> ScanAsync(KvKey key, KvSetScan? scan = null, CancellationToken cancellationToken = default);

    /// <inheritdoc cref="KvSets.IntersectAsync"/>
    ValueTask<IntersectResult> IntersectAsync(KvIntersection intersection, CancellationToken cancellationToken = default);
}
