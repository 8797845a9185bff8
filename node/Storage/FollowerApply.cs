using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Maintenance;
using KvCluster.Storage.Transactions;

namespace KvCluster.Storage;

/// <summary>
/// Applies what a follower learns to be committed, at the pace that memory allows; the counterpart of <see cref="GroupCommit"/>. A record that cannot be
/// applied ends the store. Owned by a store; writer executor.
/// </summary>
/// <param name="context">The bounds of what may wait.</param>
/// <param name="life">Nothing is applied when the store has ended.</param>
/// <param name="pages">The trees.</param>
/// <param name="durable">Bounds what waits for the disk.</param>
/// <param name="committed">Applies the records.</param>
/// <param name="checkpoints">Started when one is due.</param>
/// <param name="memory">Says how large a step may be, and how long to wait after it.</param>
/// <param name="space">Compares the changed pages with the space for the next checkpoint.</param>
internal sealed class FollowerApply(
    StoreContext context, StoreLifecycle life, PageStore pages, DurableRecords durable, CommittedRecords committed,
    CheckpointSchedule checkpoints, StoreMemory memory, FullDiskWatch space)
{
    /// <summary>
    /// Bytes of bodies that may wait to be applied while the store is slowed. A new leader applies all of them at once, and its other shards wait meanwhile.
    /// </summary>
    private const long WaitingBytesWhileSlowed = 4 << 20;

    /// <summary>
    /// Whether more bodies may be passed to <see cref="RecordLog.TryAppend"/>. False when the bodies that wait for a slow or full disk, or to be applied, have
    /// reached their bound. A body that is not passed in is treated like a lost frame: the leader sends it again.
    /// </summary>
    public bool HasRoom =>
        durable.BytesInFlight < memory.BodyBytesWaitingMax
        && committed.BytesWaiting < (memory.PagesMax() < int.MaxValue ? WaitingBytesWhileSlowed : context.Options.WaitingBodyBytesMax);

    /// <summary>
    /// Everything up to an etag is committed, and this replica follows. Applies and publishes the prepared records up to it, at once if they are few,
    /// otherwise through <see cref="ApplyMore"/>.
    /// </summary>
    public void Commit(Etag etag) => life.Guard(() =>
    {
        committed.Add(etag);
        Apply(onlyFew: true);
        checkpoints.StartIfDue();
    });

    /// <summary>
    /// Applies and publishes some of the committed records that wait, in steps, so that records which a follower receives meanwhile reach its journal and
    /// are acknowledged first. Returns true if more records wait and can be applied at once. After a pause for memory, or for pages that are read, <see
    /// cref="IStoreEvents.WorkQueued"/> says when they can; where the disk is nearly full, <see cref="IStoreEvents.Durable"/> does.
    /// </summary>
    public bool ApplyMore()
    {
        if (!MayApply || memory.IsHeldBack)
            return false;
        life.Guard(() =>
        {
            Apply(onlyFew: false);
            checkpoints.StartIfDue();
        });
        return MayApply && !memory.IsHeldBack;
    }

    private bool MayApply => committed.IsApplying && !committed.WaitsForPages && !committed.WaitsForDisk;

    private void Apply(bool onlyFew)
    {
        if (!MayApply || !memory.TryBegin())
            return;
        var before = pages.ScratchBytes;
        var pagesMax = memory.PagesMax();
        if (onlyFew && pagesMax == int.MaxValue)
            committed.ApplyFew();
        else
            committed.ApplyStep(pagesMax);
        space.Observe();
        memory.StepEnded(before, behind: 0);
    }
}
