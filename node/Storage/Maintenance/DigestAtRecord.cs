using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Transactions;

namespace KvCluster.Storage.Maintenance;

/// <summary>
/// The digest of the state that has exactly the records up to one of them, which may still wait to be applied. There is at most one at a time. Owned by a
/// store; writer executor.
/// </summary>
/// <param name="context">The shard's executors, clock and bounds.</param>
/// <param name="pages">The store to read.</param>
/// <param name="applied">Applies records, and stops at the one that was asked for.</param>
/// <param name="life">Ended by a failure.</param>
internal sealed class DigestAtRecord(StoreContext context, PageStore pages, CommittedRecords applied, StoreLifecycle life)
{
    private BackgroundDigest? _running;

    /// <summary>
    /// Computes, in the background, the digest of the state that has exactly the records up to a committed etag that has not been passed yet. An earlier
    /// digest still under way is dropped. Calls back on the writer executor, unless the store has stopped or <see cref="Drop"/> was called first.
    /// </summary>
    /// <param name="etag">A committed etag; it may still wait to be applied.</param>
    /// <param name="done">Receives the digest, or null if there is none because too much was written meanwhile or too many snapshots are open.</param>
    public void Take(Etag etag, Action<byte[]?> done) => life.Guard(() =>
    {
        var published = pages.Roots.PublishedEtag;
        Invariant.Check(
            published == etag || (applied.IsApplying && published < etag && etag <= applied.Last),
            $"A digest of {etag} was requested, but {published} is published and {applied.Last} is committed.");
        Drop();
        applied.StopAt(etag, () => Begin(done));
    });

    /// <summary>Drops the digest that is awaited or under way, if any.</summary>
    public void Drop()
    {
        applied.DropStop();
        _running?.Dispose();
        _running = null;
    }

    /// <summary>Drops it when the executors no longer run anything of this store, and closes its snapshot at once.</summary>
    public void Release()
    {
        var running = _running;
        Drop();
        running?.Release();
    }

    private void Begin(Action<byte[]?> done)
    {
        try
        {
            _running = new BackgroundDigest(context, pages, digest =>
            {
                Drop();
                done(digest);
            }, life.Fail);
        }
        catch (SnapshotLimitException)
        {
            // Readers take precedence over digests.
            done(null);
        }
    }
}
