using System.Runtime.CompilerServices;
using System.Text;

namespace KvCluster.Client;

/// <summary>
/// A queue of jobs. A job is handed out to one at a time, under a lease, and again if it is not completed. It can wait before it is handed out, be enqueued in
/// the same write as the data that it is about, and is put aside after too many attempts. Thread-safe; it has no state of its own.
/// </summary>
/// <remarks>
/// What is guaranteed: a job that was enqueued is handed out until it is completed or dead, so at least once. Its effect is there exactly once, if what it
/// makes is written together with its completion (<see cref="KvJob.CompleteIn"/>). Jobs are handed out about in the order in which they become due, by the
/// clocks of those who enqueue them; only the wait of a job is exact, because the cluster counts it.
/// What happens in failures, also in <c>client/RECIPES.md</c>:
/// a process that pauses for longer than <see cref="KvQueueOptions.LeaseTime"/> or dies loses its jobs, and others get them; if it goes on, its completion is
/// refused, but nothing else is, unless it is guarded by <see cref="KvJob.Held"/> or <see cref="KvJob.FencingEtag"/>;
/// the answer to a change is lost: it is repeated under its identity; if the outcome of receiving a job is still unknown, the job waits for the lease time, and
/// an attempt is counted;
/// the keys of a job end only with it, except that whoever removes them removes the job.
/// All keys of a queue must be of one shard. Otherwise calls fail with the reason SHARDS_DIFFER, and nothing is applied.
/// </remarks>
public sealed class KvQueue
{
    /// <summary>How many jobs are looked at together. A job has at most one lease, so those of so many fit into one answer.</summary>
    private const int PageJobs = 250;

    private const int PageLeases = 1_000;

    /// <summary>Those who work begin with different jobs, so that they seldom want the same one.</summary>
    private const int StartsAmong = 8;

    private static readonly KvQueueOptions Default = new();
    private static readonly TimeSpan Pause = TimeSpan.FromMilliseconds(500);

    private readonly IKvClient _client;
    private readonly QueueKeys _keys;
    private readonly KvQueueOptions _options;
    private readonly TimeProvider _time;

    /// <summary>A queue, which need not exist: it consists of its keys.</summary>
    /// <param name="client">Makes the calls. It must live longer than the jobs that are received.</param>
    /// <param name="prefix">What all keys of the queue begin with, and no others.</param>
    /// <param name="options">How jobs are handed out.</param>
    /// <exception cref="ArgumentException">The prefix is empty, or the options are invalid.</exception>
    public KvQueue(IKvClient client, KvKey prefix, KvQueueOptions? options = null)
        : this(client, prefix, options ?? Default, TimeProvider.System)
    {
    }

    internal KvQueue(IKvClient client, KvKey prefix, KvQueueOptions options, TimeProvider time)
    {
        ArgumentNullException.ThrowIfNull(client);
        if (prefix.IsEmpty)
            throw new ArgumentException("A queue without a prefix would be all keys of the cluster, so there is none. Choose a prefix.", nameof(prefix));
        options.Validate();
        (_client, _keys, _options, _time) = (client, new QueueKeys(prefix), options, time);
    }

    /// <summary>Enqueues a job.</summary>
    /// <param name="payload">What the job is about; up to 8 MiB.</param>
    /// <param name="delay">After how long it is handed out at the earliest; at once by default.</param>
    /// <param name="cancellationToken">Stops waiting. The job may still be enqueued.</param>
    /// <exception cref="KvOutcomeUnknownException">The job was enqueued once, or not at all.</exception>
    /// <exception cref="KvException">Nothing was enqueued.</exception>
    public async ValueTask<Guid> EnqueueAsync(KvValue payload, TimeSpan delay = default, CancellationToken cancellationToken = default)
    {
        var write = new KvWrite();
        var id = EnqueueIn(write, payload, delay);
        await _client.WriteAsync(write, cancellationToken: cancellationToken).ConfigureAwait(false);
        return id;
    }

    /// <summary>
    /// Adds a job to a write, which then changes data and enqueues the job in one change, or does neither. All keys of the write must be of the queue's shard.
    /// </summary>
    /// <param name="write">The write, to be passed to <see cref="KvClient.WriteAsync"/>.</param>
    /// <param name="payload">What the job is about; up to 8 MiB.</param>
    /// <param name="delay">After how long it is handed out at the earliest; at once by default.</param>
    /// <returns>The job.</returns>
    public Guid EnqueueIn(KvWrite write, KvValue payload, TimeSpan delay = default)
    {
        ArgumentNullException.ThrowIfNull(write);
        ArgumentOutOfRangeException.ThrowIfLessThan(delay, TimeSpan.Zero);
        // The order of ids is that of the moments at which jobs are due, by the clock here.
        var id = Guid.CreateVersion7(_time.GetUtcNow() + delay);
        write.Put(_keys.Of(QueueKeys.Job, id), payload);
        if (delay > TimeSpan.Zero)
            write.Put(_keys.Of(QueueKeys.Lease, id), default, new KvPutOptions { TimeToLive = AtLeastOneMillisecond(delay) });
        return id;
    }

    /// <summary>Receives a job, and waits until there is one.</summary>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvOutcomeUnknownException">Perhaps a job was received; it waits for the lease time then.</exception>
    /// <exception cref="KvException">A call failed. No job was received.</exception>
    public async ValueTask<KvJob> ReceiveAsync(CancellationToken cancellationToken = default)
    {
        while (true)
        {
            var (job, seen) = await LookAsync(cancellationToken).ConfigureAwait(false);
            if (job is not null)
                return job;
            await WaitForChangeAsync(seen, cancellationToken).ConfigureAwait(false);
        }
    }

    /// <summary>Receives a job.</summary>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <returns>Null if there is none, because all are received by others or have to wait.</returns>
    /// <exception cref="KvOutcomeUnknownException">Perhaps a job was received; it waits for the lease time then.</exception>
    /// <exception cref="KvException">A call failed. No job was received.</exception>
    public async ValueTask<KvJob?> TryReceiveAsync(CancellationToken cancellationToken = default) =>
        (await LookAsync(cancellationToken).ConfigureAwait(false)).Job;

    /// <summary>
    /// Receives jobs and handles them, until it is ended. A job that is handled is completed. One whose handler fails is handed out again, after a wait that
    /// grows, or put aside. While the cluster is away, this waits.
    /// </summary>
    /// <param name="handle">
    /// Handles a job. The token is cancelled when the job is lost, and when this is to end. It may settle the job itself, for example with
    /// <see cref="KvJob.CompleteIn"/>.
    /// </param>
    /// <param name="parallel">How many jobs are handled at the same time.</param>
    /// <param name="cancellationToken">Ends it, when all handlers have returned. Their jobs are handed out again at once if they were not completed.</param>
    /// <exception cref="KvException">
    /// Jobs cannot be received, also later: the keys of the queue are of several shards, or no endpoint can be used, for example.
    /// </exception>
    /// <exception cref="OperationCanceledException">It was ended.</exception>
    public async Task RunAsync(Func<KvJob, CancellationToken, Task> handle, int parallel = 1, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(handle);
        ArgumentOutOfRangeException.ThrowIfNegativeOrZero(parallel);
        var handling = new HashSet<Task>();
        try
        {
            while (true)
            {
                handling.RemoveWhere(static task => task.IsCompleted);
                if (handling.Count >= parallel)
                    await Task.WhenAny(handling).ConfigureAwait(false);
                else if (await ReceivePatientlyAsync(cancellationToken).ConfigureAwait(false) is { } job)
                    handling.Add(HandleAsync(job, handle, cancellationToken));
            }
        }
        finally
        {
            await Task.WhenAll(handling).ConfigureAwait(false);
        }
    }

    /// <summary>Counts the jobs that are neither completed nor dead, those included that somebody has or that have to wait.</summary>
    /// <exception cref="KvException">The call failed.</exception>
    public Task<long> CountAsync(CancellationToken cancellationToken = default) =>
        _client.CountAsync(_keys.Of(QueueKeys.Job), cancellationToken: cancellationToken);

    /// <summary>Returns the jobs that were put aside.</summary>
    /// <exception cref="KvException">The call failed.</exception>
    public async IAsyncEnumerable<KvDeadJob> DeadJobsAsync([EnumeratorCancellation] CancellationToken cancellationToken = default)
    {
        await foreach (var entry in _client.ScanAsync(new KvScan { Prefix = _keys.Of(QueueKeys.Dead) }, cancellationToken).ConfigureAwait(false))
        {
            if (_keys.JobOf(entry.Key, QueueKeys.Dead) is not { } id)
                continue;
            var reason = await _client.GetAsync(_keys.Of(QueueKeys.Reason, id), cancellationToken: cancellationToken).ConfigureAwait(false);
            yield return new KvDeadJob(id, entry.Value, reason.Found ? Encoding.UTF8.GetString(reason.Value.Span) : null);
        }
    }

    /// <summary>Has a job that was put aside handed out again, as if it was new.</summary>
    /// <param name="job">The job.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <returns>False if there is no such job, or somebody else was first.</returns>
    /// <exception cref="KvException">The call failed.</exception>
    public async ValueTask<bool> ReviveAsync(Guid job, CancellationToken cancellationToken = default)
    {
        var dead = await _client.GetAsync(_keys.Of(QueueKeys.Dead, job), KvReadMode.Leader, cancellationToken).ConfigureAwait(false);
        if (!dead.Found)
            return false;
        var transaction = new KvTransaction().If(KvCondition.EtagEquals(dead.Etag, _keys.Of(QueueKeys.Dead, job)));
        transaction.Then.Put(_keys.Of(QueueKeys.Job, job), dead.Value).Delete(_keys.Of(QueueKeys.Dead, job)).Delete(_keys.Of(QueueKeys.Reason, job));
        return (await _client.TransactAsync(transaction, cancellationToken: cancellationToken).ConfigureAwait(false)).Succeeded;
    }

    /// <summary>Removes a job that was put aside.</summary>
    /// <param name="job">The job.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <returns>Whether there was one.</returns>
    /// <exception cref="KvException">The call failed.</exception>
    public async ValueTask<bool> RemoveDeadAsync(Guid job, CancellationToken cancellationToken = default)
    {
        var transaction = new KvTransaction().If(KvCondition.Exists(_keys.Of(QueueKeys.Dead, job)));
        transaction.Then.Delete(_keys.Of(QueueKeys.Dead, job)).Delete(_keys.Of(QueueKeys.Reason, job));
        return (await _client.TransactAsync(transaction, cancellationToken: cancellationToken).ConfigureAwait(false)).Succeeded;
    }

    /// <summary>The shortest time that a key can live.</summary>
    internal static TimeSpan AtLeastOneMillisecond(TimeSpan delay)
    {
        var shortest = TimeSpan.FromMilliseconds(1);
        return delay > shortest ? delay : shortest;
    }

    /// <summary>Looks through the jobs for one that nobody has. Without one, everything that makes one free comes after the position.</summary>
    private async ValueTask<(KvJob? Job, ShardPosition Seen)> LookAsync(CancellationToken cancellationToken)
    {
        ShardPosition? seen = null;
        Guid? after = null;
        while (true)
        {
            var page = await ReadPageAsync(after, cancellationToken).ConfigureAwait(false);
            seen ??= page.Position;
            var free = page.Free;
            var first = free.Count == 0 ? 0 : Random.Shared.Next(Math.Min(StartsAmong, free.Count));
            for (var index = 0; index < free.Count; index++)
            {
                if (await TryTakeAsync(free[(first + index) % free.Count], cancellationToken).ConfigureAwait(false) is { } job)
                    return (job, page.Position);
            }
            if (page.Last is null)
                return (null, seen.Value);
            after = page.Last;
        }
    }

    /// <summary>Reads jobs and their leases from one snapshot.</summary>
    /// <param name="after">Behind which job; null: from the first on.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <returns>Those that nobody has; the last job that was looked at, null if it is the last of all; and the state that was read.</returns>
    private async ValueTask<(List<(Guid Id, Etag Etag)> Free, Guid? Last, ShardPosition Position)> ReadPageAsync(
        Guid? after, CancellationToken cancellationToken)
    {
        var transaction = new KvTransaction();
        transaction.Then
            .Scan(Behind(after, QueueKeys.Job), _keys.Of(QueueKeys.Job).PrefixEnd, PageJobs, keysOnly: true)
            .Scan(Behind(after, QueueKeys.Lease), _keys.Of(QueueKeys.Lease).PrefixEnd, PageLeases, keysOnly: true);
        var read = await _client.TransactAsync(transaction, cancellationToken: cancellationToken).ConfigureAwait(false);
        var (jobs, leases) = (read.Results[0], read.Results[1]);
        var leased = leases.Entries.Select(entry => _keys.JobOf(entry.Key, QueueKeys.Lease)).ToHashSet();
        var free = new List<(Guid, Etag)>();
        Guid? last = null;
        foreach (var entry in jobs.Entries)
        {
            last = _keys.JobOf(entry.Key, QueueKeys.Job);
            if (last is { } id && !leased.Contains(id))
                free.Add((id, entry.Etag));
        }
        return (free, jobs.More ? last : null, read.Position);
    }

    // The first key of a kind behind that of a job; without one, of all.
    private KvKey Behind(Guid? job, string kind) => job is { } id ? (byte[])[.. _keys.Of(kind, id).Span, 0] : _keys.Of(kind);

    /// <summary>Takes a job, unless somebody else was first.</summary>
    private async ValueTask<KvJob?> TryTakeAsync((Guid Id, Etag Etag) job, CancellationToken cancellationToken)
    {
        var (jobKey, leaseKey) = (_keys.Of(QueueKeys.Job, job.Id), _keys.Of(QueueKeys.Lease, job.Id));
        var began = _time.GetTimestamp();
        var transaction = new KvTransaction().If(KvCondition.EtagEquals(job.Etag, jobKey)).If(KvCondition.Absent(leaseKey));
        transaction.Then.Put(leaseKey, _options.Worker, new KvPutOptions { TimeToLive = _options.LeaseTime }).Increment(_keys.Of(QueueKeys.Attempts, job.Id));
        var taken = await _client.TransactAsync(transaction, cancellationToken: cancellationToken).ConfigureAwait(false);
        if (!taken.Succeeded)
            return null;
        var (etag, attempt) = (taken.Results[0].Etag, taken.Results[1].Number ?? 0);
        // It is not read in the transaction, whose results are bounded, because they are kept with its identity.
        var read = await _client.GetAsync(jobKey, KvReadMode.Leader, cancellationToken).ConfigureAwait(false);
        if (!read.Found)
            return null;
        var received = new KvJob(_client, _keys, job.Id, read.Value, attempt, etag, new Lease(_time, began, _options.LeaseTime, RenewAsync));
        if (attempt <= _options.AttemptsMax)
            return received;
        await using (received.ConfigureAwait(false))
            await received.BuryAsync(cancellationToken: cancellationToken).ConfigureAwait(false);
        return null;

        async Task<TimeSpan> RenewAsync(CancellationToken stopped)
        {
            try
            {
                await _client.TouchAsync(leaseKey, _options.LeaseTime, KvCondition.EtagEquals(etag), stopped).ConfigureAwait(false);
                return _options.LeaseTime;
            }
            catch (KvConditionFailedException)
            {
                return TimeSpan.Zero;
            }
        }
    }

    /// <summary>Waits until a job may have become free: it was enqueued, or its lease has ended.</summary>
    private async Task WaitForChangeAsync(ShardPosition seen, CancellationToken cancellationToken)
    {
        try
        {
            var watch = new KvWatch { Prefix = _keys.Prefix, KeysOnly = true, AfterPositions = [seen] };
            await foreach (var message in _client.WatchAsync(watch, cancellationToken).ConfigureAwait(false))
            {
                if (MayFreeAJob(message))
                    return;
            }
        }
        catch (KvException failure) when (failure is not KvInvalidRequestException)
        {
            // The next look says what is wrong, if something is.
            await Task.Delay(Pause, cancellationToken).ConfigureAwait(false);
        }
    }

    private bool MayFreeAJob(KvWatchMessage message)
    {
        // The lease of a job that is completed or dead goes with it, in the same message.
        var ended = message.Events.Where(static happened => happened.Kind == KvEventKind.Delete)
            .Select(happened => _keys.JobOf(happened.Key, QueueKeys.Job)).ToHashSet();
        return message.Events.Any(happened => happened.Kind switch
        {
            KvEventKind.Put => _keys.JobOf(happened.Key, QueueKeys.Job) is not null,
            KvEventKind.Delete => _keys.JobOf(happened.Key, QueueKeys.Lease) is { } job && !ended.Contains(job),
            KvEventKind.DeleteRange => true,
            _ => false,
        });
    }

    /// <summary>Receives a job; null if the cluster was away.</summary>
    private async ValueTask<KvJob?> ReceivePatientlyAsync(CancellationToken cancellationToken)
    {
        try
        {
            return await ReceiveAsync(cancellationToken).ConfigureAwait(false);
        }
        catch (KvException failure) when (failure is KvUnavailableException or KvOutcomeUnknownException or KvLineageChangedException
            && !failure.IsLasting())
        {
            await Task.Delay(failure.PauseAfter(Pause), cancellationToken).ConfigureAwait(false);
            return null;
        }
    }

    // A call that fails here leaves the job to its lease.
    private async Task HandleAsync(KvJob job, Func<KvJob, CancellationToken, Task> handle, CancellationToken cancellationToken)
    {
        await using (job.ConfigureAwait(false))
        {
            using var handling = CancellationTokenSource.CreateLinkedTokenSource(job.Lost, cancellationToken);
            var failure = await FailureOfAsync(job, handle, handling.Token).ConfigureAwait(false);
            try
            {
                if (failure is null)
                    await job.CompleteAsync(CancellationToken.None).ConfigureAwait(false);
                else if (cancellationToken.IsCancellationRequested)
                    await job.ReleaseAsync(cancellationToken: CancellationToken.None).ConfigureAwait(false);
                else if (job.Attempt >= _options.AttemptsMax)
                    await job.BuryAsync(failure, CancellationToken.None).ConfigureAwait(false);
                else
                    await job.ReleaseAsync(_options.DelayAfter(job.Attempt), failure, CancellationToken.None).ConfigureAwait(false);
            }
            catch (Exception away) when (away is KvException or ObjectDisposedException)
            {
                // It is handed out again when its lease ends, unless the change was made.
            }
        }
    }

    /// <summary>Why a handler failed; null if it did not.</summary>
    private static async Task<string?> FailureOfAsync(KvJob job, Func<KvJob, CancellationToken, Task> handle, CancellationToken cancellationToken)
    {
        const int charsMax = 1_000;
        try
        {
            await handle(job, cancellationToken).ConfigureAwait(false);
            return null;
        }
        catch (Exception failure)
        {
            var text = $"{failure.GetType().Name}: {failure.Message}";
            return text.Length <= charsMax ? text : text[..charsMax];
        }
    }
}
