using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Recovery;
using KvCluster.Storage.Snapshots;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage;

/// <summary>
/// Backups of a store: its newest checkpoint as the stream in which replicas of a cluster receive one (FORMAT.md, "Snapshot stream"). Disks are used on an
/// executor, and the caller's stream is awaited on any thread.
/// </summary>
internal static class StoreBackup
{
    private const int ChunkBytes = 1 << 20;

    /// <summary>Writes a backup that covers everything published at the time of the call.</summary>
    /// <returns>The etag of the newest change in it.</returns>
    public static async Task<Etag> WriteAsync(StandaloneStore store, Stream destination, CancellationToken cancellationToken)
    {
        await store.Store.Checkpoints.RequestAsync().WaitAsync(cancellationToken).ConfigureAwait(false);
        // Only the pages are kept, and no journal: nobody continues from there.
        using var source = new SnapshotSource(store.Store.Pages.Pin(), static _ => { });
        var chunk = new byte[ChunkBytes];
        for (var offset = 0L; offset < source.BytesTotal;)
        {
            var from = offset;
            var count = await RunAsync(store.Checkpoints, () => source.Read(chunk, from)).ConfigureAwait(false);
            await destination.WriteAsync(chunk.AsMemory(0, count), cancellationToken).ConfigureAwait(false);
            offset += count;
        }
        await destination.FlushAsync(cancellationToken).ConfigureAwait(false);
        return source.Covers.Etag;
    }

    /// <summary>Builds the engine's directory from a backup, under the name that it has meanwhile. It is verified as a whole.</summary>
    /// <returns>The etag of the newest change in it.</returns>
    public static async Task<Etag> ReadAsync(Stream source, string directory, KvStoreOptions options, CancellationToken cancellationToken)
    {
        using var thread = new WorkThread("kv-restore", options.Time);
        var context = new StoreContext(LocalDisk.Instance, thread, [thread], thread, options.Time, options.Log, options.Engine);
        var control = StandaloneStore.StateOf(StoreIdentity.Embedded);
        using var installer = await RunAsync(thread, () =>
        {
            StoreDirectory.Create(context, directory, control);
            return new SnapshotInstaller(context, directory);
        }).ConfigureAwait(false);
        var chunk = new byte[ChunkBytes];
        while (installer.BytesWanted > 0)
        {
            var count = await source.ReadAsync(chunk.AsMemory(0, (int)Math.Min(chunk.Length, installer.BytesWanted)), cancellationToken).ConfigureAwait(false);
            if (count == 0)
                throw new CorruptStoreException($"The backup ends after {installer.BytesStored} bytes, but is longer.");
            await RunAsync(thread, () =>
            {
                installer.Store(chunk.AsSpan(0, count));
                return count;
            }).ConfigureAwait(false);
        }
        return await RunAsync(thread, () =>
        {
            var covers = installer.Complete(control).Etag;
            installer.SwitchIn(control with { PromisedEpoch = covers.Epoch, Committed = covers });
            return covers;
        }).ConfigureAwait(false);
    }

    private static Task<T> RunAsync<T>(ISerialExecutor executor, Func<T> work)
    {
        var done = new TaskCompletionSource<T>(TaskCreationOptions.RunContinuationsAsynchronously);
        executor.Post(new WorkAction(() =>
        {
            try
            {
                done.SetResult(work());
            }
            catch (Exception failure)
            {
                done.SetException(failure);
            }
        }));
        return done.Task;
    }
}
