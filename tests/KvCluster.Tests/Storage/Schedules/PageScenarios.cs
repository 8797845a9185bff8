using KvCluster.Storage.DataFile;

namespace KvCluster.Tests.Storage.Schedules;

/// <summary>Readers beside the writer and a checkpoint.</summary>
internal static class PageScenarios
{
    /// <summary>Keys of one leaf, and one of another.</summary>
    private const int First = 10, Second = 11, Elsewhere = 150;

    /// <summary>A state is published, and what it has left is freed, beside a reader.</summary>
    public static Action Publication(Schedule schedule)
    {
        var store = new SteppedStore(olderBytesMax: 0);
        store.Put(First, Second);
        schedule.Add("writer", () =>
        {
            store.Put(First);
            store.Release();
        });
        schedule.Add("reader", () => store.Read(First));
        return () => End(store);
    }

    /// <summary>A reader opens a snapshot of a newer state in the slot that it has left, which still has what the older one needed.</summary>
    public static Action SlotUsedAgain(Schedule schedule)
    {
        var store = new SteppedStore(olderBytesMax: 0);
        var before = store.Pages.Roots.OpenSnapshot();
        store.Put(First);
        schedule.Add("reader", () =>
        {
            before.Dispose();
            store.Read(First);
        });
        schedule.Add("writer", () =>
        {
            store.Put(First);
            store.Release();
        });
        return () => End(store);
    }

    /// <summary>Two readers come and go, and may take each other's slot.</summary>
    public static Action TwoReaders(Schedule schedule)
    {
        var store = new SteppedStore(olderBytesMax: 0);
        schedule.Add("writer", () =>
        {
            store.Put(First);
            store.Put(First);
            store.Release();
        });
        schedule.Add("reader", () =>
        {
            store.Read(First);
            store.Read(First);
        });
        schedule.Add("other reader", () => store.Read(First));
        return () => End(store);
    }

    /// <summary>
    /// A checkpoint is written. The trees are made to refer to its pages, also a delta of which it has folded an older one, and what it leaves is freed.
    /// </summary>
    public static Action Swap(Schedule schedule)
    {
        var store = new SteppedStore(olderBytesMax: 0);
        store.Put(First, Elsewhere);
        var checkpoint = store.Freeze();
        store.Put(First, Second);
        checkpoint.Write();
        schedule.Add("writer", () =>
        {
            store.Finish(checkpoint, between: static () => { });
            store.Release();
        });
        schedule.Add("reader", () => store.Read(First, Elsewhere));
        return () => End(store);
    }

    /// <summary>
    /// A whole checkpoint: it folds a delta, and the trees are made to refer to what it wrote, while younger deltas of the same base are published. The next
    /// one takes pages that are free then.
    /// </summary>
    public static Action Checkpoint(Schedule schedule) => Checkpoint(schedule, olderBytesMax: 16 << 20);

    /// <summary>The same where the checkpoint takes both meta pages, so that the pages which it has left are free at once.</summary>
    public static Action CheckpointOfBothMetaPages(Schedule schedule) => Checkpoint(schedule, olderBytesMax: 0);

    private static Action Checkpoint(Schedule schedule, long olderBytesMax)
    {
        var store = new SteppedStore(olderBytesMax);
        Checkpoint? frozen = null;
        var isWritten = false;
        schedule.Add("writer", () =>
        {
            store.Put(First, Elsewhere);
            frozen = store.Freeze();
            store.Put(First, Second);
            store.Seal(Second);
            Schedule.Until(() => isWritten);
            store.Finish(frozen, between: store.Publish);
            store.Release();
            // Takes and overwrites what is free.
            store.Put(First, Elsewhere);
            var next = store.Freeze();
            next.Write();
            store.Finish(next, between: static () => { });
            store.Release();
        });
        schedule.Add("checkpoint", () =>
        {
            Schedule.Until(() => frozen is not null);
            while (!frozen!.WriteStep())
                Schedule.Operation();
            isWritten = true;
        });
        schedule.Add("reader", () => store.Read(First, Second, Elsewhere));
        return () => End(store);
    }

    private static void End(SteppedStore store)
    {
        using (store)
            store.CheckAtEnd();
    }
}
