using FsCheck;
using FsCheck.Fluent;
using KvCluster.Disk;
using KvCluster.Storage.Transactions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>Random commands to a whole store: requests, checkpoints, readers, time, ends of the process, and power cuts.</summary>
internal static class StoreCommands
{
    /// <summary>Requests that are left to wait. Then a further one waits for their answers.</summary>
    private const int WaitingMax = 30;

    public static Command<StoreModel> Checkpoint { get; } = new("checkpoint", model =>
    {
        model.Bench.Checkpoint();
        model.Settle();
    });

    public static Command<StoreModel> OpenReader { get; } = new("open a reader", model => model.OpenReader());

    private static Gen<Command<ModelRequest>> SomeCondition { get; } =
        from key in Changes.SomeKey
        from kind in Gen.Elements(ConditionKind.EtagEquals, ConditionKind.Exists, ConditionKind.Absent, ConditionKind.ValueEquals)
        from isAsKnown in Gen.Elements(true, true, false)
        select isAsKnown
            ? new Command<ModelRequest>($"if k{key} is as known ({kind})", request => request.IfAsKnown(Changes.Key(key), kind))
            : new Command<ModelRequest>($"if k{key} is 'x' ({kind})", request => request.If(Changes.Key(key), kind, new Etag(0, 5), "x"));

    private static Gen<Command<ModelRequest>[]> SomeConditions { get; } =
        from count in Gen.Frequency((4, Gen.Constant(0)), (1, Gen.Constant(1)), (1, Gen.Constant(2)))
        from conditions in SomeCondition.ArrayOf(count)
        select conditions;

    /// <summary>A request of the whole language, which a number determines.</summary>
    private static Gen<Command<StoreModel>> AnyRequest { get; } =
        from seed in Gen.Choose(0, int.MaxValue)
        from waits in Gen.Elements(true, false)
        select new Command<StoreModel>($"request {seed}{(waits ? "" : ", and do not wait")}", model =>
        {
            if (model.Waiting >= WaitingMax)
                model.AwaitAnswers();
            model.Submit(request => ModelRequests.Fill(request, new Random(seed)));
            if (waits)
                model.AwaitAnswers();
        });

    private static Gen<Command<IChanges>[]> SomeChanges { get; } = Gen.Frequency(
        (5, from count in Gen.Choose(1, 4) from changes in Changes.OfKeys.ArrayOf(count) select changes),
        (1, Changes.OfRanges.ArrayOf(1)));

    public static Gen<Command<StoreModel>> Any { get; } = Gen.Frequency(
        (14, from conditions in SomeConditions
             from changes in SomeChanges
             from waits in Gen.Elements(true, false)
             select Write(conditions, changes, waits)),
        (4, from steps in Gen.Choose(1, 8) select Step(steps)),
        (2, Gen.Constant(Checkpoint)),
        (3, Gen.Constant(new Command<StoreModel>("begin a checkpoint", model => _ = model.Bench.Store.Checkpoints.RequestAsync()))),
        (3, Gen.Constant(OpenReader)),
        (3, from reader in Gen.Choose(0, 3) select CloseReader(reader)),
        (2, from seconds in Gen.Elements(1, 6, 600) select Pass(seconds)),
        (1, Gen.Constant(Reopen("end the process", null))),
        (1, from unsynced in Gen.Elements(Enum.GetValues<UnsyncedWrites>()) select Reopen($"cut the power (unsynced writes {unsynced})", unsynced)));

    /// <summary>The same, and requests of the whole language, which are not made smaller.</summary>
    public static Gen<Command<StoreModel>> AnyWithRequests { get; } = Gen.Frequency((4, Any), (1, AnyRequest));

    private static Command<StoreModel> Write(Command<ModelRequest>[] conditions, Command<IChanges>[] changes, bool waits) => new(
        $"{string.Concat(conditions.Select(condition => condition.Text + ", "))}{string.Join("; ", changes.Select(change => change.Text))}"
            + (waits ? "" : ", and do not wait"),
        model =>
        {
            if (model.Waiting >= WaitingMax)
                model.AwaitAnswers();
            model.Submit(request =>
            {
                foreach (var condition in conditions)
                    condition.Run(request);
                foreach (var change in changes)
                    change.Run(request);
            });
            if (waits)
                model.AwaitAnswers();
        },
        () => SmallerWrites(conditions, changes, waits));

    private static IEnumerable<Command<StoreModel>> SmallerWrites(Command<ModelRequest>[] conditions, Command<IChanges>[] changes, bool waits)
    {
        if (!waits)
            yield return Write(conditions, changes, waits: true);
        if (conditions.Length > 0)
            yield return Write(conditions[1..], changes, waits);
        for (var index = 0; index < changes.Length; index++)
        {
            if (changes.Length > 1)
                yield return Write(conditions, [.. changes[..index], .. changes[(index + 1)..]], waits);
            foreach (var smaller in changes[index].Smaller())
                yield return Write(conditions, [.. changes[..index], smaller, .. changes[(index + 1)..]], waits);
        }
    }

    private static Command<StoreModel> Step(int steps) => new(
        $"run {steps} steps",
        model =>
        {
            for (var step = 0; step < steps; step++)
                model.Bench.Step();
        },
        () => Changes.Below(steps, 1).Select(Step));

    private static Command<StoreModel> CloseReader(int index) => new($"close reader {index}", model =>
    {
        if (model.Readers > 0)
            model.CloseReader(index % model.Readers);
    });

    /// <summary>A quiescent store returns memory and space after some seconds.</summary>
    private static Command<StoreModel> Pass(int seconds) => new($"{seconds} seconds pass", model =>
    {
        model.RunUntilIdle();
        model.Bench.Time.Advance(TimeSpan.FromSeconds(seconds));
        model.RunUntilIdle();
    });

    private static Command<StoreModel> Reopen(string text, UnsyncedWrites? powerCut) => new($"{text}, and open again", model => model.Reopen(powerCut));
}
