using KvCluster.Storage.Context;
using KvCluster.Storage.Files;
using KvCluster.Storage.Recovery;
using KvCluster.Storage.Threads;

namespace KvCluster.Node.Shards;

/// <summary>Ends a replica for good: marks its directory, so that it is not opened again, and then fails the replica.</summary>
/// <param name="storage">The disk, and the checkpoint executor, because the mark's sync may take long.</param>
/// <param name="mailbox">The replica's.</param>
/// <param name="fail">Fails the replica. Writer executor.</param>
internal sealed class Quarantine(StoreContext storage, ReplicaMailbox mailbox, Action<Exception> fail)
{
    /// <summary>Begins. Writer executor.</summary>
    /// <param name="directory">The replica's directory.</param>
    /// <param name="why">The reason, for people.</param>
    /// <param name="ended">Receives whether this quarantine ended the replica; false if something else did.</param>
    public void Begin(string directory, string why, TaskCompletionSource<bool>? ended) => storage.Checkpoints.Post(new WorkAction(() =>
    {
        var outcome = Mark(directory, why);
        mailbox.Leave(() => fail(outcome), ended);
    }));

    private Exception Mark(string directory, string why)
    {
        try
        {
            QuarantineMark.Write(storage.Files, directory, why);
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
