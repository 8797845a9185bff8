using KvCluster.Storage.Files;

namespace KvCluster.Node.Hosting;

/// <summary>The failure of a disk, such as of a sync, that has ended a replica of this node. It ends the process, whose restart recovers. Any thread.</summary>
internal sealed class DiskFailure
{
    private readonly TaskCompletionSource<StorageIoException> _first = new(TaskCreationOptions.RunContinuationsAsynchronously);

    /// <summary>Completes when a disk has refused or lost what a replica wrote or synced.</summary>
    public Task<StorageIoException> First => _first.Task;

    /// <summary>A replica was ended by a failure.</summary>
    public void Note(Exception failure)
    {
        // Including lack of space: a full disk for which something can wait does not end a replica.
        if (failure is StorageIoException broken)
            _first.TrySetResult(broken);
    }
}
