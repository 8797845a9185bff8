using KvCluster.Node.Shards.Context;
using KvCluster.Storage;
using KvCluster.Storage.Context;

namespace KvCluster.Node.Shards.Snapshots;

/// <summary>
/// Replaces a replica's store by the one that is opened on a received snapshot. Until the new store is in use, the old one only serves reads. Called on the
/// shard's writer executor, <see cref="CloseAsync"/> on any thread after the replica has stopped.
/// </summary>
/// <param name="journal">Provides the current store.</param>
/// <param name="events">Receives the events of each store in use.</param>
internal sealed class StoreSwitch(ReplicaJournalView journal, IStoreEvents events)
{
    private readonly List<Task> _closing = [];
    private TaskCompletionSource? _switched;

    /// <summary>
    /// Stops the store in use for a received state, and calls back when it no longer changes its directory. False while it still writes its control file.
    /// </summary>
    public bool TryStop(Action quiet)
    {
        if (journal.Store.Durable.ControlsInFlight > 0)
            return false;
        _switched = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        journal.Store.Stop(quiet);
        return true;
    }

    /// <summary>The received state cannot be opened until the disk has space, for an unknown time.</summary>
    public void LackRoom(Exception full) => journal.Store.Checkpoints.EndRequests(full);

    /// <summary>Takes the received state's store into use, even if the replica has ended; null if there is none.</summary>
    public void Use(ReplicaStore? store)
    {
        if (store is not null)
        {
            var old = journal.Store;
            journal.Store = store;
            store.Start(events);
            store.Checkpoints.TakeOver(old.Checkpoints);
            // Readers of the old state may continue for a while.
            _closing.RemoveAll(static closed => closed.IsCompletedSuccessfully);
            _closing.Add(old.CloseAsync());
        }
        else
        {
            journal.Store.Checkpoints.EndRequests();
        }
        _switched!.SetResult();
    }

    /// <summary>Closes the store in use and waits for those before it.</summary>
    public async Task CloseAsync()
    {
        // While stores are being switched it is not known which one is in use.
        if (_switched is not null)
            await _switched.Task.ConfigureAwait(false);
        await Task.WhenAll([.. _closing, journal.Store.CloseAsync()]).ConfigureAwait(false);
    }
}
