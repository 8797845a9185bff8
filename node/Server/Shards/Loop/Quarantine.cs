using KvCluster.Node.Shards.Context;
using KvCluster.Replication;
using KvCluster.Storage.Files;
using KvCluster.Storage.Recovery;
using KvCluster.Storage.Threads;

namespace KvCluster.Node.Shards.Loop;

/// <summary>
/// Ends a replica for good whose contents are not trusted: marks its directory, so that it is not opened again, and then fails the replica. Damage that the
/// store itself finds is not marked: it ends the replica by <see cref="StoreNotices.Failed"/>. What follows for both is in <c>DamagedReplica</c>.
/// </summary>
/// <param name="context">The disk, the clock, and the checkpoint executor, because the mark's sync may take long.</param>
/// <param name="core">Knows the epoch.</param>
/// <param name="journal">Provides the current store.</param>
/// <param name="mailbox">The replica's.</param>
/// <param name="life">Ended by the quarantine.</param>
internal sealed class Quarantine(ShardReplicaContext context, ReplicaCore core, ReplicaJournalView journal, ReplicaMailbox mailbox, ReplicaLife life)
{
    /// <summary>
    /// Ends this replica for good, like a failure of its own: it no longer votes, acknowledges or answers, not even after a restart. The result is not done
    /// if it had already stopped for another reason, if the disk failed while the mark was written, or (then without a failure) if the leave was no longer
    /// valid. Any thread.
    /// </summary>
    /// <param name="why">The reason, for people.</param>
    /// <param name="leave">What the shard's leader stated; null: an operator forces it.</param>
    public async Task<OrderResult> EnterAsync(string why, QuarantineLeave? leave)
    {
        var ended = new TaskCompletionSource<bool>(TaskCreationOptions.RunContinuationsAsynchronously);
        var refusal = "the replica is stopping";
        var visited = await mailbox.VisitAsync(() =>
        {
            if (leave is { } given && (core.Epoch > given.Epoch || context.Clock.GetTimestamp() > given.UsableUntil))
            {
                refusal = "the shard has a new leader, or the request took too long; try again";
                ended.TrySetResult(false);
                return;
            }
            Begin(why, ended);
        }).ConfigureAwait(false);
        if (visited)
            await ended.Task.ConfigureAwait(false);
        return new OrderResult(life.Failure is QuarantinedException, life.Failure?.Message ?? refusal);
    }

    /// <summary>Begins. Writer executor.</summary>
    /// <param name="why">The reason, for people.</param>
    /// <param name="ended">Receives whether this quarantine ended the replica; false if something else did.</param>
    public void Begin(string why, TaskCompletionSource<bool>? ended = null)
    {
        life.Quarantine();
        var directory = journal.Store.Directory;
        context.Storage.Checkpoints.Post(new WorkAction(() =>
        {
            var outcome = Mark(directory, why);
            mailbox.Leave(() => life.Fail(outcome), ended);
        }));
    }

    private Exception Mark(string directory, string why)
    {
        try
        {
            QuarantineMark.Write(context.Storage.Files, directory, why);
            return new QuarantinedException(why);
        }
        catch (StorageIoException full) when (full.IsDiskFull)
        {
            // On a full disk the replica fails without its mark: it must not run with wrong contents until there is space.
            return new QuarantinedException($"{why}; this could not be recorded, so the replica may run again after a restart: {full.Message}");
        }
        catch (Exception failure)
        {
            return failure;
        }
    }
}
