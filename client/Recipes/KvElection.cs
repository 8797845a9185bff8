using System.Runtime.CompilerServices;

namespace KvCluster.Client;

/// <summary>
/// An election: of several candidates one leads, and when it is gone, another one. Leading means to hold a <see cref="KvLock"/> whose value is the candidate.
/// Thread-safe; it has no state of its own.
/// </summary>
/// <remarks>
/// What happens in failures is that of the lock, also in <c>client/RECIPES.md</c>: there is one key, so there is one leader in the cluster; but a leader that
/// pauses does not notice that it has been replaced. So what a leader does must refuse a former one, by the condition <see cref="KvLock.Held"/> or by
/// <see cref="KvLock.FencingEtag"/>. Those who ask or watch who leads learn of a new leader late.
/// </remarks>
public sealed class KvElection
{
    private static readonly TimeSpan Pause = TimeSpan.FromMilliseconds(500);

    private readonly IKvClient _client;
    private readonly KvKey _key;
    private readonly TimeSpan _lifetime;

    /// <summary>An election, which need not exist: it consists of its key.</summary>
    /// <param name="client">Makes the calls.</param>
    /// <param name="key">The election, a key that is used for nothing else.</param>
    /// <param name="lifetime">From a second to a day: after how long another one leads when the leader dies or pauses; ten seconds if it is null.</param>
    /// <exception cref="ArgumentException">The key is empty.</exception>
    public KvElection(IKvClient client, KvKey key, TimeSpan? lifetime = null)
    {
        ArgumentNullException.ThrowIfNull(client);
        if (key.IsEmpty)
            throw new ArgumentException("An election is a key, which has at least one byte.", nameof(key));
        (_client, _key, _lifetime) = (client, key, lifetime ?? new KvLockOptions().Lifetime);
    }

    /// <summary>Waits until the candidate leads.</summary>
    /// <param name="candidate">Who leads then, for others to read, for example an address.</param>
    /// <param name="cancellationToken">Stops waiting. The candidate does not lead then.</param>
    /// <returns>The leadership, which is given up by disposing of it.</returns>
    /// <exception cref="KvException">A call failed. The candidate does not lead.</exception>
    public ValueTask<KvLock> CampaignAsync(KvValue candidate, CancellationToken cancellationToken = default) =>
        KvLock.AcquireAsync(_client, _key, new KvLockOptions { Lifetime = _lifetime, Holder = candidate }, cancellationToken);

    /// <summary>
    /// Runs a function whenever the candidate leads: waits until it does, also while the cluster is away, and again after the leadership was lost. Ends when
    /// the function returns although it was not lost, after which the leadership is given up.
    /// </summary>
    /// <param name="candidate">Who leads then, for others to read, for example an address.</param>
    /// <param name="lead">
    /// Gets the leadership, and a token that is cancelled when it is lost and when this is to end. It should return soon then: the candidate does not stand
    /// again before.
    /// </param>
    /// <param name="cancellationToken">Ends it, and gives up the leadership when the function has returned.</param>
    /// <exception cref="KvInvalidRequestException">The candidate is too large, or the lifetime is none that a session can have.</exception>
    /// <exception cref="KvException">The candidate cannot lead, also later: no endpoint can be used, or the credentials are refused, for example.</exception>
    /// <exception cref="OperationCanceledException">It was ended.</exception>
    public async Task RunAsync(KvValue candidate, Func<KvLock, CancellationToken, Task> lead, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(lead);
        while (true)
        {
            if (await TryCampaignAsync(candidate, cancellationToken).ConfigureAwait(false) is not { } leadership)
                continue;
            await using (leadership.ConfigureAwait(false))
            {
                await LeadAsync(leadership, lead, cancellationToken).ConfigureAwait(false);
                if (!leadership.IsLost)
                    return;
            }
        }
    }

    /// <summary>Asks who leads. Null: nobody.</summary>
    /// <exception cref="KvException">The call failed.</exception>
    public async ValueTask<KvLeader?> FindLeaderAsync(CancellationToken cancellationToken = default)
    {
        var read = await _client.GetAsync(_key, KvReadMode.Leader, cancellationToken).ConfigureAwait(false);
        return read.Found ? new KvLeader(read.Value, read.Etag) : null;
    }

    /// <summary>
    /// Returns who leads, and then each change of that, until it is cancelled; null while nobody leads. It goes on when the cluster was away, and may leave out
    /// leaders of that time.
    /// </summary>
    /// <exception cref="KvException">The election cannot be watched, also later: no endpoint can be used, for example.</exception>
    /// <exception cref="OperationCanceledException">It was cancelled.</exception>
    public async IAsyncEnumerable<KvLeader?> WatchLeaderAsync([EnumeratorCancellation] CancellationToken cancellationToken = default)
    {
        var isFirst = true;
        KvLeader? told = null;
        while (true)
        {
            var states = WatchedKey.StatesAsync(_client, _key, keysOnly: false, cancellationToken).GetAsyncEnumerator(cancellationToken);
            await using (states.ConfigureAwait(false))
            {
                while (await TryMoveNextAsync(states).ConfigureAwait(false))
                {
                    var leader = states.Current is { } entry ? new KvLeader(entry.Value, entry.Etag) : (KvLeader?)null;
                    if (!isFirst && leader == told)
                        continue;
                    (isFirst, told) = (false, leader);
                    yield return leader;
                }
            }
            await Task.Delay(Pause, cancellationToken).ConfigureAwait(false);
        }
    }

    private static async Task LeadAsync(KvLock leadership, Func<KvLock, CancellationToken, Task> lead, CancellationToken cancellationToken)
    {
        using var leading = CancellationTokenSource.CreateLinkedTokenSource(leadership.Lost, cancellationToken);
        try
        {
            await lead(leadership, leading.Token).ConfigureAwait(false);
        }
        catch (Exception failure) when (failure is OperationCanceledException or KvConditionFailedException
            && leadership.IsLost && !cancellationToken.IsCancellationRequested)
        {
            // It was told that it does not lead any more, by the token or by what it guards.
        }
    }

    /// <summary>Returns null, after a pause, if the cluster was away, or did not say what became of a change. Fails if it would fail again.</summary>
    private async Task<KvLock?> TryCampaignAsync(KvValue candidate, CancellationToken cancellationToken)
    {
        try
        {
            return await CampaignAsync(candidate, cancellationToken).ConfigureAwait(false);
        }
        catch (KvException failure) when (!failure.IsLasting())
        {
            await Task.Delay(failure.PauseAfter(Pause), cancellationToken).ConfigureAwait(false);
            return null;
        }
    }

    private static async Task<bool> TryMoveNextAsync(IAsyncEnumerator<KvEntry?> states)
    {
        try
        {
            return await states.MoveNextAsync().ConfigureAwait(false);
        }
        catch (KvException failure) when (!failure.IsLasting())
        {
            return false;
        }
    }
}

/// <summary>Who leads in a <see cref="KvElection"/>.</summary>
/// <param name="Candidate">The candidate, as it stood.</param>
/// <param name="FencingEtag">The etag of its leadership, greater than those of all leaders before (<see cref="KvLock.FencingEtag"/>).</param>
public readonly record struct KvLeader(KvValue Candidate, Etag FencingEtag);
