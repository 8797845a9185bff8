using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;
using KvCluster.Node.Shards.Context;
using KvCluster.Replication.Protocol;
using KvCluster.ServiceDefaults.Logs;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Hosting;

/// <summary>
/// Access to the shards' records in the coordinator. Called on writer executors, which never wait here; answers on the thread pool. What a replica is told is
/// on this node's disk first, because it may act on it.
/// </summary>
internal sealed class ShardRecords(ICoordinator coordinator, CoordinatorKeys keys, KnownRecords known, ILogger log) : IShardRecords
{
    // A failure that all shards meet is logged once for all of them.
    private readonly OncePerReason _outages = new();
    private readonly OncePerReason<ShardId> _failures = new();

    public void Read(ShardId shard, Action<ShardRecordRead> done) => ThreadPool.UnsafeQueueUserWorkItem(_ => ReadAsync(shard, done), null);

    public void CompareAndSet(ShardId shard, ShardRecord record, long expectedRevision, Action<CompareAndSetResult> done)
    {
        ThreadPool.UnsafeQueueUserWorkItem(_ => CompareAndSetAsync(shard, record, expectedRevision, done), null);
    }

    private async void ReadAsync(ShardId shard, Action<ShardRecordRead> done)
    {
        ShardRecordRead answer;
        try
        {
            var read = await coordinator.GetAsync(keys.Shard(shard), CancellationToken.None).ConfigureAwait(false);
            answer = new ShardRecordRead(read.Value is null ? null : RecordText.Parse<ShardRecord>(read.Value), read.ModRevision);
            if (answer.Record is { } record)
            {
                // A recovery is complete, and counts, when the cluster's record has its number. Older ones are judged by the replica, which raises the alarm.
                if (RecoveryNumber.Of(record) is var recovery && known.Recovery is var joined && recovery.Number >= joined.Number && recovery != joined)
                    throw new CoordinatorUnavailableException($"The record is of recovery {recovery}, which this node has not joined.");
                if (!known.TryKeep(record))
                    throw Unusable();
            }
            _outages.Forget();
            _failures.Forget(shard);
        }
        catch (Exception failure)
        {
            answer = new ShardRecordRead(null, 0);
            if (MaySay(shard, failure))
                HostLog.RecordNotRead(log, shard, failure.Message);
        }
        done(answer);
    }

    private async void CompareAndSetAsync(ShardId shard, ShardRecord record, long expectedRevision, Action<CompareAndSetResult> done)
    {
        CompareAndSetResult answer;
        try
        {
            // The expected revision is one of the recovery that the record is of. In a store that was rebuilt since, it may be that of another record.
            var guard = coordinator.Guard;
            answer = RecoveryNumber.Of(record) != (guard?.Recovery ?? default) || known.Bound is not null
                ? new CompareAndSetResult(SetOutcome.Lost, 0)
                : await coordinator.CompareAndSetAsync(
                    keys.Shard(shard), expectedRevision, RecordText.Format(record), 0, guard, CancellationToken.None).ConfigureAwait(false);
            // Since it was sent, this node may have reported that the record before it is the newest that it knows. Then the recovery decides what became of
            // this one.
            if (answer.Outcome == SetOutcome.Won && !known.TryKeep(record))
                throw Unusable();
        }
        catch (CoordinatorAlarmException)
        {
            // The compare-and-set was not sent, because of an alarm, or it changed nothing, because the guard did not hold.
            answer = new CompareAndSetResult(SetOutcome.Lost, 0);
        }
        catch (Exception failure)
        {
            // Whatever the failure is, the request may have been sent. The replica repeats it, and reads the record if that is lost.
            if (MaySay(shard, failure))
                HostLog.RecordNotSet(log, shard, failure.Message);
            answer = new CompareAndSetResult(SetOutcome.Unknown, 0);
        }
        done(answer);
    }

    private CoordinatorUnavailableException Unusable() =>
        new($"The record is not used: {(known.Bound is { } bound ? KnownRecords.DescribeBound(bound) : "this node was bound to a recovery until now")}.");

    private bool MaySay(ShardId shard, Exception failure) =>
        failure is CoordinatorUnavailableException ? _outages.MaySay(failure.Message) : _failures.MaySay(shard, failure.Message);
}
