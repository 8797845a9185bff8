namespace KvCluster.Client;

/// <summary>
/// The calls of a <see cref="KvClient"/> on keys, for programs whose tests pass another client: a mock, or the client in memory of the package
/// KvCluster.Testing. Thread-safe. Calls for operators are on <see cref="KvClient.Admin"/> only.
/// </summary>
/// <remarks>
/// Programs use this interface and do not implement it. A later version of the library may add calls, as members that throw
/// <see cref="NotSupportedException"/> unless a client has them, so that mocks still compile. Whoever makes a client disposes it.
/// </remarks>
public interface IKvClient
{
    /// <inheritdoc cref="KvClient.Sets"/>
    IKvSets Sets { get; }

    /// <inheritdoc cref="KvClient.Sessions"/>
    IKvSessions Sessions { get; }

    /// <inheritdoc cref="KvClient.GetAsync"/>
    ValueTask<GetResult> GetAsync(KvKey key, KvGetOptions? options = null, CancellationToken cancellationToken = default);

    /// <inheritdoc cref="KvClient.GetNearestAsync"/>
    ValueTask<GetResult> GetNearestAsync(
        KvKey key, KvNearest nearest, KvKey within = default, KvGetOptions? options = null, CancellationToken cancellationToken = default);

    /// <inheritdoc cref="KvClient.GetManyAsync"/>
    ValueTask<IReadOnlyList<GetResult>> GetManyAsync(
        IReadOnlyList<KvKey> keys, KvGetOptions? options = null, CancellationToken cancellationToken = default);

    /// <inheritdoc cref="KvClient.Observe"/>
    void Observe(ShardPosition position);

    /// <inheritdoc cref="KvClient.PutAsync"/>
    ValueTask<PutResult> PutAsync(KvKey key, KvValue value, KvPutOptions? options = null, CancellationToken cancellationToken = default);

    /// <inheritdoc cref="KvClient.TryPutAsync"/>
    ValueTask<KvTryResult<PutResult>> TryPutAsync(KvKey key, KvValue value, KvPutOptions options, CancellationToken cancellationToken = default);

    /// <inheritdoc cref="KvClient.DeleteAsync"/>
    ValueTask<DeleteResult> DeleteAsync(KvKey key, KvChangeOptions? options = null, CancellationToken cancellationToken = default);

    /// <inheritdoc cref="KvClient.TryDeleteAsync"/>
    ValueTask<KvTryResult<DeleteResult>> TryDeleteAsync(KvKey key, KvChangeOptions options, CancellationToken cancellationToken = default);

    /// <inheritdoc cref="KvClient.DeleteRangeAsync(KvRange, KvCallOptions?, CancellationToken)"/>
    ValueTask<DeleteRangeResult> DeleteRangeAsync(KvRange range, KvCallOptions? options = null, CancellationToken cancellationToken = default);

    /// <inheritdoc cref="KvClient.IncrementAsync"/>
    ValueTask<IncrementResult> IncrementAsync(KvKey key, long by = 1, KvChangeOptions? options = null, CancellationToken cancellationToken = default);

    /// <inheritdoc cref="KvClient.TryIncrementAsync"/>
    ValueTask<KvTryResult<IncrementResult>> TryIncrementAsync(
        KvKey key, long by, KvChangeOptions options, CancellationToken cancellationToken = default);

    /// <inheritdoc cref="KvClient.TouchAsync"/>
    ValueTask<TouchResult> TouchAsync(KvKey key, TimeSpan? timeToLive, KvChangeOptions? options = null, CancellationToken cancellationToken = default);

    /// <inheritdoc cref="KvClient.TransactAsync"/>
    ValueTask<TransactResult> TransactAsync(KvTransaction transaction, KvCallOptions? options = null, CancellationToken cancellationToken = default);

    /// <inheritdoc cref="KvClient.WriteAsync"/>
    ValueTask<WriteResult> WriteAsync(KvWrite write, KvCallOptions? options = null, CancellationToken cancellationToken = default);

    /// <inheritdoc cref="KvClient.TryWriteAsync"/>
    ValueTask<KvTryResult<WriteResult>> TryWriteAsync(KvWrite write, KvCallOptions? options = null, CancellationToken cancellationToken = default);

    /// <inheritdoc cref="KvClient.ScanAsync"/>
    IAsyncEnumerable<KvEntry> ScanAsync(KvScan scan, CancellationToken cancellationToken = default);

    /// <inheritdoc cref="KvClient.WatchAsync"/>
    IAsyncEnumerable<KvWatchMessage> WatchAsync(KvWatch watch, CancellationToken cancellationToken = default);

    /// <inheritdoc cref="KvClient.ListAsync"/>
    ValueTask<KvPage> ListAsync(KvList list, string? pageToken = null, CancellationToken cancellationToken = default);

    /// <inheritdoc cref="KvClient.CountAsync"/>
    Task<long> CountAsync(KvKey prefix, KvReadOptions? options = null, CancellationToken cancellationToken = default);

    /// <inheritdoc cref="KvClient.CountRangeAsync"/>
    Task<long> CountRangeAsync(KvRange range, KvReadOptions? options = null, CancellationToken cancellationToken = default);

    /// <inheritdoc cref="KvClient.BulkLoad"/>
    IKvBulkLoad BulkLoad(TimeSpan? giveUpAfter = null);

    /// <inheritdoc cref="KvClient.FindShardAsync"/>
    ValueTask<uint?> FindShardAsync(KvKey key, CancellationToken cancellationToken = default);

    /// <inheritdoc cref="KvClient.PingAsync"/>
    ValueTask<TimeSpan> PingAsync(CancellationToken cancellationToken = default);
}
