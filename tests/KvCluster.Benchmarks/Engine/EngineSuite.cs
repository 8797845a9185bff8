namespace KvCluster.Benchmarks.Engine;

/// <summary>
/// The storage engine alone beside LMDB and RocksDB, in this process, on the disk of the temporary directory. The engines take turns, so that a slower
/// minute of the machine slows all of them.
/// </summary>
internal static class EngineSuite
{
    /// <summary>The groups of rows, which can be selected by name, in the order in which they run.</summary>
    public static readonly IReadOnlyDictionary<string, Func<EngineRun, Task>> Groups = new Dictionary<string, Func<EngineRun, Task>>
    {
        ["puts"] = WriteRows.PutsAsync,
        ["transactions"] = WriteRows.TransactionsAsync,
        ["large-transactions"] = WriteRows.LargeTransactionsAsync,
        ["budgets"] = BudgetRows.RunAsync,
        ["steady"] = WriteRows.SteadyAsync,
        ["reads"] = ReadRows.ReadsAsync,
        ["embedded"] = EmbeddedRows.RunAsync,
        ["load"] = LoadRows.SortedAsync,
        ["space"] = LoadRows.RandomSpaceAsync,
        ["space-by-size"] = SpaceRows.RunAsync,
        ["files"] = LoadRows.FilesAsync,
        ["compression"] = CompressionRows.RunAsync,
        ["cold"] = ColdRows.RunAsync,
        ["ranges"] = RangeRows.RunAsync,
        ["pauses"] = PauseRows.RunAsync,
        ["lanes"] = LaneRows.RunAsync,
        ["held"] = HeldSnapshotRows.RunAsync,
        ["open"] = OpenRows.RunAsync,
        ["allocation"] = AllocationRows.RunAsync,
        ["checkpoint"] = CheckpointRows.ScatteredAsync,
        ["overwrite"] = CheckpointRows.OverwrittenAsync,
    };

    /// <summary>See <see cref="BenchmarkSuite"/>.</summary>
    public static async Task<IReadOnlyList<BenchmarkRow>> RunAsync(EnginePlan plan, Action<string> progress, CancellationToken cancellation)
    {
        using var directory = new TemporaryDirectory();
        var run = new EngineRun(plan, directory.Path, progress, cancellation);
        foreach (var (name, measureAsync) in Groups)
        {
            if (plan.Only.Count == 0 || plan.Only.Contains(name))
                await measureAsync(run);
        }
        return run.Rows;
    }

    /// <summary>The rows of <see cref="BeyondMemoryRows"/>, which take too long for the others.</summary>
    public static async Task<IReadOnlyList<BenchmarkRow>> RunBeyondMemoryAsync(
        EnginePlan plan, bool quick, Action<string> progress, CancellationToken cancellation)
    {
        using var directory = new TemporaryDirectory();
        var run = new EngineRun(plan, directory.Path, progress, cancellation);
        await BeyondMemoryRows.RunAsync(run, quick);
        return run.Rows;
    }
}
