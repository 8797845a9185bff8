using KvCluster.Storage.DataFile;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;

namespace KvCluster.Tests.Storage.Pages;

/// <summary>The usual steps of a test of a page store.</summary>
internal static class PageStoreSteps
{
    /// <summary>Makes one batch of changes, and publishes it as the next etag.</summary>
    public static void Apply(this PageStore store, Action<WriteBatch> change)
    {
        var batch = store.Begin();
        change(batch);
        var etag = store.Roots.NewestEtag.Next();
        store.Roots.Seal(batch, etag);
        store.Roots.Publish(etag);
    }

    /// <summary>Writes a whole checkpoint of all that is published, of which something must have changed.</summary>
    public static void CheckpointAll(this PageStore store)
    {
        var checkpoint = store.BeginCheckpoint(static etag => new CheckpointPosition(etag, default, 0), Etag.MaxValue);
        Assert.NotNull(checkpoint);
        checkpoint.Write();
        store.FinishCheckpoint(checkpoint);
    }

    /// <summary>The etag of the next change in the same epoch.</summary>
    public static Etag Next(this Etag etag) => etag == Etag.None ? new Etag(1, 1) : etag with { Change = etag.Change + 1 };
}
