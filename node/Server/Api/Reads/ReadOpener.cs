using KvCluster.Node.Api.Calls;
using KvCluster.Node.Api.Errors;
using KvCluster.Node.Hosting;
using KvCluster.Storage.DataFile;
using KvCluster.V1;

namespace KvCluster.Node.Api.Reads;

/// <summary>Opens snapshots that are as new as reads require (kv.proto, ReadMode). Used for calls and for scans; any thread.</summary>
/// <param name="lookup">Finds replicas, and has this node's id.</param>
/// <param name="clock">For deadlines.</param>
/// <param name="waitMax">Longest wait for a replica to catch up, whatever the deadline, and also without one; null: ten seconds, as long as a call without
/// a deadline may take.</param>
internal sealed class ReadOpener(ShardLookup lookup, TimeProvider clock, TimeSpan? waitMax = null)
{
    private static readonly TimeSpan WaitMaxDefault = TimeSpan.FromSeconds(10);

    private readonly TimeSpan _waitMax = waitMax ?? WaitMaxDefault;

    // Share of the caller's remaining time that is spent waiting. The rest is for the refusal to reach the caller.
    private const double DeadlineShare = 0.9;

    /// <summary>Opens a snapshot if that needs no waiting: no message is sent, and for reads at the leader no lock is taken and nothing allocated.</summary>
    public static bool TryOpen(HostedShard shard, in ReadQuery query, out OpenedRead read)
    {
        var replica = shard.Replica!;
        ReadSnapshot snapshot = default;
        ulong? ageUs = null;
        bool isOpen;
        switch (query.Mode)
        {
            case ReadMode.Leader or ReadMode.Replica:
                isOpen = replica.Reads.TryOpenLinearizable(out snapshot);
                break;
            case ReadMode.Session when replica.Reads.HasApplied(query.Seen):
                snapshot = replica.Reads.OpenSnapshot();
                isOpen = true;
                break;
            case ReadMode.Stale:
                // Read before the snapshot is opened, which may then be newer but not older.
                ageUs = replica.Reads.AgeUs;
                snapshot = replica.Reads.OpenSnapshot();
                isOpen = true;
                break;
            default:
                isOpen = false;
                break;
        }
        read = new OpenedRead(snapshot, ageUs, null);
        return isOpen;
    }

    /// <summary>Opens a snapshot, after waiting if <see cref="TryOpen"/> fails.</summary>
    /// <param name="shard">The shard.</param>
    /// <param name="query">How new the snapshot must be.</param>
    /// <param name="deadlineTimestamp">The caller's deadline, as a timestamp of the clock; 0: none.</param>
    /// <param name="cancellationToken">The caller gave up.</param>
    public async ValueTask<OpenedRead> OpenAsync(HostedShard shard, ReadQuery query, long deadlineTimestamp, CancellationToken cancellationToken)
    {
        if (TryOpen(shard, query, out var read))
            return read;
        if (await ConfirmAsync(shard, query, deadlineTimestamp, cancellationToken).ConfigureAwait(false) is { } refusal)
            return new OpenedRead(default, null, refusal);
        OpenConfirmed(shard, out read);
        return read;
    }

    /// <summary>
    /// The wait of <see cref="OpenAsync"/>: for a confirming round that begins after this call, or until the replica has caught up. It holds no snapshot.
    /// </summary>
    /// <returns>Null if a snapshot opened from now on, however much later, is new enough (<see cref="OpenConfirmed"/>).</returns>
    public async ValueTask<ApiError?> ConfirmAsync(HostedShard shard, ReadQuery query, long deadlineTimestamp, CancellationToken cancellationToken) =>
        query.Mode switch
        {
            ReadMode.Session => await CatchUpWithSessionAsync(shard, query.Seen, deadlineTimestamp, cancellationToken).ConfigureAwait(false),
            ReadMode.Replica when !shard.Replica!.IsServing => await CatchUpWithLeaderAsync(shard, deadlineTimestamp, cancellationToken).ConfigureAwait(false),
            _ =>
                await shard.Replica!.Reads.ConfirmAsync(cancellationToken).ConfigureAwait(false) is not null ? null
                    : ApiErrors.NotLeader(shard.Route, lookup.Node),
        };

    /// <summary>Opens a snapshot after a confirmation. Always true.</summary>
    public static bool OpenConfirmed(HostedShard shard, out OpenedRead read)
    {
        read = new OpenedRead(shard.Replica!.Reads.OpenSnapshot(), null, null);
        return true;
    }

    private ValueTask<ApiError?> CatchUpWithSessionAsync(HostedShard shard, Etag seen, long deadlineTimestamp, CancellationToken cancellationToken)
    {
        // The answer is not needed. It makes the leader send its committed etag now, and not with its next heartbeat.
        _ = shard.Replica!.Reads.AskLeaderAsync(CancellationToken.None);
        return CatchUpAsync(shard, seen, deadlineTimestamp, cancellationToken);
    }

    private async ValueTask<ApiError?> CatchUpWithLeaderAsync(HostedShard shard, long deadlineTimestamp, CancellationToken cancellationToken) =>
        await shard.Replica!.Reads.AskLeaderAsync(cancellationToken).ConfigureAwait(false) is { } committed
            ? await CatchUpAsync(shard, committed, deadlineTimestamp, cancellationToken).ConfigureAwait(false)
            : ApiErrors.LeaderSilent(shard.Route, lookup.Node);

    private async ValueTask<ApiError?> CatchUpAsync(HostedShard shard, Etag etag, long deadlineTimestamp, CancellationToken cancellationToken)
    {
        var limit = deadlineTimestamp == 0 ? _waitMax : LeftUntil(deadlineTimestamp) * DeadlineShare;
        limit = limit < _waitMax ? limit : _waitMax;
        return await shard.Replica!.Reads.WaitForAppliedAsync(etag, limit, cancellationToken).ConfigureAwait(false) ? null
            : ApiErrors.ReplicaBehind(shard, etag, lookup.Node);
    }

    private TimeSpan LeftUntil(long deadlineTimestamp)
    {
        var left = clock.GetElapsedTime(clock.GetTimestamp(), deadlineTimestamp);
        return left > TimeSpan.Zero ? left : TimeSpan.Zero;
    }
}

/// <summary>A snapshot that is new enough for a read, with the age for its answer; or the error.</summary>
/// <param name="Snapshot">To be closed by the caller, if there is no error.</param>
/// <param name="AgeUs">For a stale read, how long it may be out of date, if known.</param>
/// <param name="ApiError">Null if the snapshot is open.</param>
internal readonly record struct OpenedRead(ReadSnapshot Snapshot, ulong? AgeUs, ApiError? ApiError);
