using System.Text;

namespace KvCluster.Client;

/// <summary>
/// A job of a <see cref="KvQueue"/> that this process has, until it is completed, released, put aside or lost. Its lease is renewed until then, or until it is
/// disposed. Thread-safe.
/// </summary>
public sealed class KvJob : IAsyncDisposable
{
    private readonly IKvClient _client;
    private readonly QueueKeys _keys;
    private readonly Lease _lease;

    internal KvJob(IKvClient client, QueueKeys keys, Guid id, KvValue payload, long attempt, Etag leaseEtag, Lease lease) =>
        (_client, _keys, Id, Payload, Attempt, FencingEtag, _lease) = (client, keys, id, payload, attempt, leaseEtag, lease);

    /// <summary>The job, the same in all attempts.</summary>
    public Guid Id { get; }

    /// <summary>What was enqueued.</summary>
    public KvValue Payload { get; }

    /// <summary>How often the job was handed out, this time included. An attempt that nobody has heard of counts, too.</summary>
    public long Attempt { get; }

    /// <summary>The etag of the lease, greater than those of all former ones of this job. See <see cref="KvLock.FencingEtag"/>.</summary>
    public Etag FencingEtag { get; }

    /// <summary>
    /// The condition that this process has the job, for a <see cref="KvWrite"/> or a <see cref="KvTransaction"/> on keys of the queue's shard.
    /// </summary>
    public KvCondition Held => KvCondition.EtagEquals(FencingEtag, _keys.Of(QueueKeys.Lease, Id));

    /// <summary>
    /// Cancelled when the job is lost, because its lease has ended or may have ended, and when it is not to be worked on any more. What is registered here
    /// should not throw: a call that completes, releases or buries the job returns what became of it all the same, and <see cref="DisposeAsync"/> throws.
    /// </summary>
    public CancellationToken Lost => _lease.Lost;

    /// <summary>
    /// Whether another one may have the job. False does not say that the next change is made under the lease: guard it with <see cref="Held"/>.
    /// </summary>
    public bool IsLost => _lease.IsLost;

    /// <summary>Removes the job, which is done.</summary>
    /// <returns>False if this process does not have it any more. It was completed before, or is handed out again.</returns>
    /// <exception cref="KvOutcomeUnknownException">It was removed, or will be handed out again.</exception>
    /// <exception cref="KvException">The call failed. The job will be handed out again.</exception>
    public ValueTask<bool> CompleteAsync(CancellationToken cancellationToken = default)
    {
        var transaction = new KvTransaction().If(Held);
        foreach (var key in OwnKeys())
            transaction.Then.Delete(key);
        return SettleAsync(transaction, cancellationToken);
    }

    /// <summary>
    /// Adds the removal of the job to a write, which then stores what the job has made and completes it in one change, or does neither. So the effect of the
    /// job is there exactly once, however often it is handed out. All keys of the write must be of the queue's shard.
    /// </summary>
    /// <param name="write">The write, to be passed to <see cref="KvClient.WriteAsync"/>. It fails with <see cref="KvConditionFailedException"/> if this process
    /// does not have the job any more.</param>
    /// <returns>The same write.</returns>
    public KvWrite CompleteIn(KvWrite write)
    {
        ArgumentNullException.ThrowIfNull(write);
        write.If(Held);
        foreach (var key in OwnKeys())
            write.Delete(key);
        return write;
    }

    /// <summary>Gives the job back, so that it is handed out again.</summary>
    /// <param name="delay">After how long; at once by default.</param>
    /// <param name="reason">Why, for people; it is kept until the job is completed.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <returns>False if this process does not have it any more.</returns>
    /// <exception cref="KvException">The call failed. The job will be handed out again.</exception>
    public ValueTask<bool> ReleaseAsync(TimeSpan delay = default, string? reason = null, CancellationToken cancellationToken = default)
    {
        ArgumentOutOfRangeException.ThrowIfLessThan(delay, TimeSpan.Zero);
        var transaction = new KvTransaction().If(Held);
        if (delay > TimeSpan.Zero)
            transaction.Then.Put(_keys.Of(QueueKeys.Lease, Id), default, new KvPutOptions { TimeToLive = KvQueue.AtLeastOneMillisecond(delay) });
        else
            transaction.Then.Delete(_keys.Of(QueueKeys.Lease, Id));
        AddReason(transaction, reason);
        return SettleAsync(transaction, cancellationToken);
    }

    /// <summary>Puts the job aside as dead. It is not handed out any more, unless it is revived.</summary>
    /// <param name="reason">Why, for people.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <returns>False if this process does not have it any more.</returns>
    /// <exception cref="KvException">The call failed. The job is dead, or will be handed out again.</exception>
    public ValueTask<bool> BuryAsync(string? reason = null, CancellationToken cancellationToken = default)
    {
        var transaction = new KvTransaction().If(Held);
        transaction.Then.Put(_keys.Of(QueueKeys.Dead, Id), Payload)
            .Delete(_keys.Of(QueueKeys.Job, Id)).Delete(_keys.Of(QueueKeys.Lease, Id)).Delete(_keys.Of(QueueKeys.Attempts, Id));
        AddReason(transaction, reason);
        return SettleAsync(transaction, cancellationToken);
    }

    /// <summary>Stops to renew the lease. A job that is neither completed nor released nor dead is handed out again when its lease ends.</summary>
    /// <exception cref="AggregateException">What was registered on <see cref="Lost"/> threw exceptions.</exception>
    public async ValueTask DisposeAsync() => await _lease.StopAsync().ConfigureAwait(false);

    private KvKey[] OwnKeys() =>
    [
        _keys.Of(QueueKeys.Job, Id), _keys.Of(QueueKeys.Lease, Id), _keys.Of(QueueKeys.Attempts, Id), _keys.Of(QueueKeys.Reason, Id),
    ];

    private void AddReason(KvTransaction transaction, string? reason)
    {
        if (reason is not null)
            transaction.Then.Put(_keys.Of(QueueKeys.Reason, Id), Encoding.UTF8.GetBytes(reason));
    }

    private async ValueTask<bool> SettleAsync(KvTransaction transaction, CancellationToken cancellationToken)
    {
        var settled = await _client.TransactAsync(transaction, cancellationToken: cancellationToken).ConfigureAwait(false);
        // The caller must learn whether the change was made. What was registered on Lost and throws, throws out of DisposeAsync.
        await _lease.StopAsync().ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        return settled.Succeeded;
    }
}

/// <summary>A job that was put aside, because it failed too often or somebody said so.</summary>
public sealed class KvDeadJob
{
    internal KvDeadJob(Guid id, KvValue payload, string? reason) => (Id, Payload, Reason) = (id, payload, reason);

    /// <summary>The job.</summary>
    public Guid Id { get; }

    /// <summary>What was enqueued.</summary>
    public KvValue Payload { get; }

    /// <summary>Why the last attempt failed, for people; null if nobody has said it.</summary>
    public string? Reason { get; }
}
