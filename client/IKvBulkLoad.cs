namespace KvCluster.Client;

/// <summary>The calls of <see cref="KvBulkLoad"/>. Programs use this interface and do not implement it, as they do with <see cref="IKvClient"/>.</summary>
public interface IKvBulkLoad : IAsyncDisposable
{
    /// <inheritdoc cref="KvBulkLoad.Acknowledged"/>
    long Acknowledged { get; }

    /// <inheritdoc cref="KvBulkLoad.AcknowledgedThrough"/>
    long AcknowledgedThrough { get; }

    /// <inheritdoc cref="KvBulkLoad.LongestPause"/>
    TimeSpan LongestPause { get; }

    /// <inheritdoc cref="KvBulkLoad.AddAsync"/>
    ValueTask AddAsync(KvKey key, KvValue value, CancellationToken cancellationToken = default);

    /// <inheritdoc cref="KvBulkLoad.FlushAsync"/>
    Task FlushAsync(CancellationToken cancellationToken = default);

    /// <inheritdoc cref="KvBulkLoad.StopAsync"/>
    Task StopAsync(CancellationToken cancellationToken = default);
}
