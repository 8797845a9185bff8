namespace KvCluster.Client;

/// <summary>
/// A lock that is held: a key that exists as long as somebody holds it, owned by a session that this keeps alive. It is released by disposing of it.
/// Thread-safe.
/// </summary>
/// <remarks>
/// A lock alone is not safe. A process that pauses for longer than <see cref="KvLockOptions.Lifetime"/> loses it, does not notice, and goes on in the middle
/// of what it was doing, while somebody else holds the lock. No lock in a network can prevent that, and <see cref="IsLost"/> only makes it rare. So what the
/// lock protects must refuse a former holder:
/// a change of keys of the same shard by the condition <see cref="Held"/>, which makes it exact;
/// anything else by remembering the greatest <see cref="FencingEtag"/> that it has seen and refusing less, since each holder's etag is greater than those of
/// all before.
/// What happens in other failures, also in <c>client/RECIPES.md</c>:
/// the answer to a change is lost: acquiring it is repeated under its identity, and if it fails all the same, its session is ended, so that no lock is left;
/// the key ends, because somebody removes it: the lock is free, its holder learns it by <see cref="CheckAsync"/> or a refusal only.
/// Who waits gets the lock in no particular order.
/// </remarks>
public sealed class KvLock : IAsyncDisposable
{
    private static readonly KvLockOptions Default = new();
    private static readonly TimeSpan WatchPause = TimeSpan.FromMilliseconds(200);

    private readonly IKvClient _client;

    private KvLock(IKvClient client, KvKey key, Etag fencingEtag, KvLiveSession session) =>
        (_client, Key, FencingEtag, Session) = (client, key, fencingEtag, session);

    /// <summary>Its key, which exists as long as it is held. Nobody must write it.</summary>
    public KvKey Key { get; }

    /// <summary>
    /// The etag of the key. It is greater than those of all former holders of the lock, and less than those of all later ones, across failovers. After a
    /// restore of the cluster from a backup they begin with those of the backup.
    /// </summary>
    public Etag FencingEtag { get; }

    /// <summary>The condition that it is held by this holder, for a <see cref="KvWrite"/> or a <see cref="KvTransaction"/> on keys of its shard.</summary>
    public KvCondition Held => KvCondition.EtagEquals(FencingEtag, Key);

    /// <summary>Cancelled when the session that holds it has ended or may have ended, and when it is released. See <see cref="KvLiveSession.Lost"/>.</summary>
    public CancellationToken Lost => Session.Lost;

    /// <summary>
    /// Whether the session that holds it has ended or may have ended. False does not say that the next change is made under the lock: see the remarks.
    /// </summary>
    public bool IsLost => Session.IsLost;

    internal KvLiveSession Session { get; }

    /// <summary>Acquires a lock, and waits until it is free.</summary>
    /// <param name="client">Makes the calls. It must live longer than the lock.</param>
    /// <param name="key">The lock, a key that is used for nothing else.</param>
    /// <param name="options">How it is held.</param>
    /// <param name="cancellationToken">Stops waiting. No lock is held then.</param>
    /// <exception cref="KvException">A call failed. No lock is held; if the cluster could not be told, after the lifetime at the latest.</exception>
    public static async ValueTask<KvLock> AcquireAsync(
        IKvClient client, KvKey key, KvLockOptions? options = null, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(client);
        // Who waits without end gets it.
        return (await AcquireAsync(client, key, options, Timeout.InfiniteTimeSpan, TimeProvider.System, cancellationToken).ConfigureAwait(false))!;
    }

    /// <summary>Acquires a lock if it is free, or becomes so soon.</summary>
    /// <param name="client">Makes the calls. It must live longer than the lock.</param>
    /// <param name="key">The lock, a key that is used for nothing else.</param>
    /// <param name="wait">How long to wait until it is free, beside the time of the calls; none by default.</param>
    /// <param name="options">How it is held.</param>
    /// <param name="cancellationToken">Stops waiting. No lock is held then.</param>
    /// <returns>Null if somebody else holds it.</returns>
    /// <exception cref="KvException">A call failed. No lock is held; if the cluster could not be told, after the lifetime at the latest.</exception>
    public static ValueTask<KvLock?> TryAcquireAsync(
        IKvClient client, KvKey key, TimeSpan wait = default, KvLockOptions? options = null, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(client);
        ArgumentOutOfRangeException.ThrowIfLessThan(wait, TimeSpan.Zero);
        return AcquireAsync(client, key, options, wait, TimeProvider.System, cancellationToken);
    }

    /// <param name="client">Makes the calls.</param>
    /// <param name="key">The lock.</param>
    /// <param name="options">How it is held.</param>
    /// <param name="wait">How long to wait until it is free.</param>
    /// <param name="time">The clock.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    internal static async ValueTask<KvLock?> AcquireAsync(
        IKvClient client, KvKey key, KvLockOptions? options, TimeSpan wait, TimeProvider time, CancellationToken cancellationToken)
    {
        var terms = options ?? Default;
        using var waited = new CancellationTokenSource(wait, time);
        using var waiting = CancellationTokenSource.CreateLinkedTokenSource(waited.Token, cancellationToken);
        while (true)
        {
            var session = await KvLiveSession.OpenAsync(client, key, terms.Lifetime, time, cancellationToken).ConfigureAwait(false);
            KvLock? acquired = null;
            try
            {
                acquired = await TakeAsync(client, key, terms.Holder, session, waiting.Token, cancellationToken).ConfigureAwait(false);
                if (acquired is not null)
                    return acquired;
            }
            catch (OperationCanceledException) when (waited.IsCancellationRequested && !cancellationToken.IsCancellationRequested)
            {
                return null;
            }
            finally
            {
                // With it goes what a change may have left whose outcome is unknown. What is still under way is refused for want of an owner.
                if (acquired is null)
                    await session.DisposeAsync().ConfigureAwait(false);
            }
        }
    }

    /// <summary>Asks the cluster whether it is held. The answer is about the moment at which it was given.</summary>
    /// <exception cref="KvException">The call failed.</exception>
    public async ValueTask<bool> CheckAsync(CancellationToken cancellationToken = default)
    {
        var read = await _client.GetAsync(Key, KvReadMode.Leader, cancellationToken).ConfigureAwait(false);
        return read.Found && read.Etag == FencingEtag;
    }

    /// <summary>
    /// Releases it, for which it waits five seconds at most. If that fails, others get it after the lifetime. It is no error if it was lost.
    /// </summary>
    /// <exception cref="AggregateException">What was registered on <see cref="Lost"/> threw exceptions.</exception>
    public ValueTask DisposeAsync() => Session.DisposeAsync();

    /// <summary>Acquires it under a session. Returns null if that has ended.</summary>
    /// <exception cref="OperationCanceledException">It is not free, and nobody waits any more.</exception>
    private static async ValueTask<KvLock?> TakeAsync(
        IKvClient client, KvKey key, KvValue holder, KvLiveSession session, CancellationToken waiting, CancellationToken cancellationToken)
    {
        while (!session.IsLost)
        {
            try
            {
                var terms = new KvPutOptions { Condition = KvCondition.Absent(), Owner = session.Session };
                var put = await client.PutAsync(key, holder, terms, cancellationToken).ConfigureAwait(false);
                // The lock has ended with its session if the answer came too late.
                return session.IsLost ? null : new KvLock(client, key, put.Etag, session);
            }
            catch (KvConditionFailedException)
            {
                await WaitUntilFreeAsync(client, key, waiting).ConfigureAwait(false);
            }
            catch (KvNoOwnerException)
            {
                return null;
            }
        }
        return null;
    }

    /// <summary>Waits until its key is absent, or cannot be watched.</summary>
    private static async Task WaitUntilFreeAsync(IKvClient client, KvKey key, CancellationToken waiting)
    {
        waiting.ThrowIfCancellationRequested();
        try
        {
            await foreach (var entry in WatchedKey.StatesAsync(client, key, keysOnly: true, waiting).ConfigureAwait(false))
            {
                if (entry is null)
                    return;
            }
        }
        catch (KvException)
        {
            // The next attempt to acquire it says what is wrong, if something is.
            await Task.Delay(WatchPause, waiting).ConfigureAwait(false);
        }
    }
}
