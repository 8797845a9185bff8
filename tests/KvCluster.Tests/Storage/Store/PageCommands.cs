using FsCheck;
using FsCheck.Fluent;
using KvCluster.Disk;
using KvCluster.Tests.Storage.Pages;

namespace KvCluster.Tests.Storage.Store;

/// <summary>Random commands to a page store: batches, publications, the steps of a checkpoint, readers, space given back, and power cuts.</summary>
internal static class PageCommands
{
    private const int ReadersMax = 6;

    public static Command<ModelStore> OpenReader { get; } = new("open a reader", store =>
    {
        if (store.Readers < ReadersMax)
            store.OpenReader();
    });

    private static Gen<Command<IChanges>[]> SomeChanges { get; } =
        from count in Gen.Choose(1, 6)
        from changes in Gen.Frequency((8, Changes.OfKeys), (1, Changes.OfRanges)).ArrayOf(count)
        select changes;

    private static Gen<UnsyncedWrites> SomeUnsynced { get; } = Gen.Elements(Enum.GetValues<UnsyncedWrites>());

    public static Gen<Command<ModelStore>> Any { get; } = Gen.Frequency(
        (9, from changes in SomeChanges select Batch("batch", changes, store => store.Publish())),
        (4, from changes in SomeChanges select Batch("unpublished batch", changes, static _ => { })),
        (1, from changes in SomeChanges select AbortedBatch(changes)),
        (2, from count in Gen.Choose(1, 3) select new Command<ModelStore>($"publish {count}", store => store.Publish(count))),
        (1, Gen.Constant(new Command<ModelStore>("drop what is unpublished", store => store.DropUnpublished()))),
        (3, Gen.Constant(OpenReader)),
        (3, from reader in Gen.Choose(0, ReadersMax - 1) select CloseReader(reader)),
        (3, Gen.Constant(new Command<ModelStore>("checkpoint", Checkpoint))),
        (4, Gen.Constant(new Command<ModelStore>("begin a checkpoint", BeginCheckpoint))),
        (4, Gen.Constant(new Command<ModelStore>("write the checkpoint", WriteCheckpoint))),
        (4, from steps in Gen.Choose(1, 12) select FinishSteps(steps)),
        (2, Gen.Constant(new Command<ModelStore>("give back space", GiveBack))),
        (1, Gen.Constant(new Command<ModelStore>("close and open again", store => Reopen(store, null)))),
        (1, from unsynced in SomeUnsynced
            select new Command<ModelStore>($"cut the power (unsynced writes {unsynced}), and open again", store => Reopen(store, unsynced))),
        (2, from call in Gen.Choose(1, 12) from unsynced in SomeUnsynced select CutPowerInCheckpoint(call, unsynced)));

    private static Command<ModelStore> Batch(string text, Command<IChanges>[] changes, Action<ModelStore> then) => new(
        $"{text}: {TextOf(changes)}",
        store =>
        {
            store.Batch(batch => Make(changes, batch));
            then(store);
        },
        () => Smaller(changes).Select(smaller => Batch(text, smaller, then)));

    private static Command<ModelStore> AbortedBatch(Command<IChanges>[] changes) => new(
        $"aborted batch: {TextOf(changes)}",
        store => store.Batch(batch => Make(changes, batch), seal: false),
        () => Smaller(changes).Select(AbortedBatch));

    private static string TextOf(Command<IChanges>[] changes) => string.Join("; ", changes.Select(change => change.Text));

    private static void Make(Command<IChanges>[] changes, ModelBatch batch)
    {
        var target = new BatchChanges(batch);
        foreach (var change in changes)
            change.Run(target);
    }

    private static IEnumerable<Command<IChanges>[]> Smaller(Command<IChanges>[] changes)
    {
        for (var index = 0; index < changes.Length; index++)
        {
            if (changes.Length > 1)
                yield return [.. changes[..index], .. changes[(index + 1)..]];
            foreach (var smaller in changes[index].Smaller())
                yield return [.. changes[..index], smaller, .. changes[(index + 1)..]];
        }
    }

    private static Command<ModelStore> CloseReader(int index) => new($"close reader {index}", store =>
    {
        if (store.Readers > 0)
            store.CloseReader(index % store.Readers);
    });

    /// <summary>Completes a checkpoint in progress, or writes a whole one.</summary>
    private static void Checkpoint(ModelStore store)
    {
        if (store.IsCheckpointing)
            store.EndCheckpoint();
        else
            store.Checkpoint();
    }

    private static void BeginCheckpoint(ModelStore store)
    {
        if (!store.IsCheckpointing)
            store.BeginCheckpoint();
    }

    private static void WriteCheckpoint(ModelStore store)
    {
        if (store.IsCheckpointing && !store.IsCheckpointWritten)
            store.WriteCheckpoint();
    }

    private static Command<ModelStore> FinishSteps(int steps) => new(
        $"run {steps} steps of the checkpoint's end",
        store =>
        {
            for (var step = 0; step < steps && store.IsCheckpointWritten; step++)
                store.FinishStep();
        },
        () => Changes.Below(steps, 1).Select(FinishSteps));

    private static void GiveBack(ModelStore store)
    {
        while (!store.IsCheckpointing && store.Store.TryChooseSurplus(out var part, store.HolePagesMin))
            store.GiveBack(part);
    }

    private static void Reopen(ModelStore store, UnsyncedWrites? powerCut)
    {
        CloseReaders(store);
        store.Reopen(powerCut);
        store.Store.Verify();
    }

    private static Command<ModelStore> CutPowerInCheckpoint(int call, UnsyncedWrites unsynced) => new(
        $"cut the power at call {call} of writing a checkpoint (unsynced writes {unsynced}), and open again",
        store =>
        {
            BeginCheckpoint(store);
            if (!store.IsCheckpointing || store.IsCheckpointWritten)
                return;
            CloseReaders(store);
            if (!store.CrashWritingCheckpoint(call))
                return;
            store.ReopenAfterCrashInCheckpoint(unsynced, call);
            store.Store.Verify();
        },
        () => Changes.Below(call, 1).Select(fewer => CutPowerInCheckpoint(fewer, unsynced)));

    private static void CloseReaders(ModelStore store)
    {
        while (store.Readers > 0)
            store.CloseReader(0);
    }
}
