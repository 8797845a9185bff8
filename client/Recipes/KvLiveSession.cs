namespace KvCluster.Client;

/// <summary>
/// A session that keeps itself alive, and says when it is lost. Keys that it owns (<see cref="KvPutOptions.Owner"/>) live as long as it does, and so tell
/// others that this process does. Thread-safe.
/// </summary>
/// <remarks>
/// What happens in failures, also in <c>client/RECIPES.md</c>:
/// a process that pauses for longer than the lifetime finds the session lost when it goes on, <see cref="IsLost"/> at once and <see cref="Lost"/> soon after,
/// and others may have seen its keys go long before;
/// a renewal whose answer is lost is repeated, and without one in time the session counts as lost here although it may live on in the cluster, never the other
/// way round;
/// a session that is lost stays so, also if the cluster would still know it.
/// A clock that stands still while the machine sleeps finds it out too late. So what must not happen after a loss needs a condition on a key that the session
/// owns, as <see cref="KvLock.Held"/> is, and <see cref="IsLost"/> only saves work.
/// </remarks>
public sealed class KvLiveSession : IAsyncDisposable
{
    private static readonly TimeSpan EndTimeMax = TimeSpan.FromSeconds(5);

    private readonly IKvClient _client;
    private readonly Lease _lease;

    private KvLiveSession(IKvClient client, KvSession session, Lease lease) => (_client, Session, _lease) = (client, session, lease);

    /// <summary>The session, for <see cref="KvPutOptions.Owner"/>. It is kept alive and ended by this, and by nobody else.</summary>
    public KvSession Session { get; }

    /// <summary>
    /// Cancelled when the session has ended, when it may have ended because no renewal was answered in time, and when it is disposed. What is registered here
    /// must not take long.
    /// </summary>
    public CancellationToken Lost => _lease.Lost;

    /// <summary>Whether the session has ended or may have ended. Also right directly after a pause of the process.</summary>
    public bool IsLost => _lease.IsLost;

    /// <summary>How long the session certainly lives without another renewal; zero if it is lost.</summary>
    public TimeSpan TimeLeft => _lease.TimeLeft;

    /// <summary>Opens a session in the shard of a key, and keeps it alive from now on.</summary>
    /// <param name="client">Makes the calls. It must live longer than the session.</param>
    /// <param name="key">Any key of the shard.</param>
    /// <param name="lifetime">
    /// From a second to a day: how long the session lives when this process does not. It should be longer than pauses of the process and changes of leaders
    /// are.
    /// </param>
    /// <param name="cancellationToken">Stops waiting. A session that was opened all the same ends by itself.</param>
    /// <exception cref="KvException">The session was not opened.</exception>
    public static ValueTask<KvLiveSession> OpenAsync(IKvClient client, KvKey key, TimeSpan lifetime, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(client);
        return OpenAsync(client, key, lifetime, TimeProvider.System, cancellationToken);
    }

    internal static async ValueTask<KvLiveSession> OpenAsync(
        IKvClient client, KvKey key, TimeSpan lifetime, TimeProvider time, CancellationToken cancellationToken)
    {
        var began = time.GetTimestamp();
        var session = await client.Sessions.OpenAsync(key, lifetime, cancellationToken: cancellationToken).ConfigureAwait(false);
        var lease = new Lease(time, began, lifetime, stopped => client.Sessions.KeepAliveAsync(session, cancellationToken: stopped).AsTask());
        return new KvLiveSession(client, session, lease);
    }

    /// <summary>
    /// Ends the session and with it its keys, for which it waits five seconds at most. If that fails, they end by themselves after the lifetime.
    /// </summary>
    /// <exception cref="AggregateException">What was registered on <see cref="Lost"/> threw exceptions.</exception>
    public async ValueTask DisposeAsync()
    {
        try
        {
            await _lease.StopAsync().ConfigureAwait(false);
        }
        finally
        {
            await EndAsync().ConfigureAwait(false);
        }
    }

    private async Task EndAsync()
    {
        using var limit = new CancellationTokenSource(EndTimeMax);
        try
        {
            await _client.Sessions.EndAsync(Session, cancellationToken: limit.Token).ConfigureAwait(false);
        }
        catch (Exception failure) when (failure is KvException or OperationCanceledException or ObjectDisposedException)
        {
            // The shard ends it when nobody has kept it alive for its lifetime.
        }
    }
}
