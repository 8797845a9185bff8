namespace KvCluster.Client;

/// <summary>The calls of <see cref="KvSessions"/>. Programs use this interface and do not implement it, as they do with <see cref="IKvClient"/>.</summary>
public interface IKvSessions
{
    /// <inheritdoc cref="KvSessions.OpenAsync"/>
    ValueTask<KvSession> OpenAsync(KvKey key, TimeSpan lifetime, KvCallOptions? options = null, CancellationToken cancellationToken = default);

    /// <inheritdoc cref="KvSessions.KeepAliveAsync"/>
    ValueTask<TimeSpan> KeepAliveAsync(KvSession session, KvCallOptions? options = null, CancellationToken cancellationToken = default);

    /// <inheritdoc cref="KvSessions.EndAsync"/>
    ValueTask<ulong?> EndAsync(KvSession session, KvCallOptions? options = null, CancellationToken cancellationToken = default);
}
