using System.Globalization;
using KvCluster.Benchmarks.Engine.Peers;
using KvCluster.Storage.Context;

namespace KvCluster.Benchmarks.Engine;

/// <summary>
/// Single puts with one, two and four journal writes in flight, on this disk and on slower ones. The systems of these rows are numbers of writes in flight.
/// </summary>
internal static class LaneRows
{
    private const long Keys = 10_000;
    private static readonly int[] Writes = [1, 2, 4];
    private static readonly int[] DelaysMs = [0, 2, 10];
    private static readonly int[] Callers = [1, 8, 64, 512];

    /// <summary>The rows of the group.</summary>
    public static async Task RunAsync(EngineRun run)
    {
        foreach (var delay in DelaysMs)
        {
            EngineSystem[] systems = [.. Writes.Select(writes => new EngineSystem(
                string.Create(CultureInfo.InvariantCulture, $"{writes} in flight"),
                directory => new KvClusterEngine(
                    directory, new StoreOptions { JournalWrites = writes }, KvClusterEngine.MemoryBudgetDefault,
                    new SlowJournalDisk(TimeSpan.FromMilliseconds(delay)))))];
            using var stores = run.NewStores(systems);
            foreach (var callers in Callers)
            {
                var name = string.Create(CultureInfo.InvariantCulture, $"{WriteRows.PutsOf(callers)}{(delay == 0 ? "" : $", journal slower by {delay} ms")}");
                await run.AlternateAsync(name, [WriteRows.PutsPerSecond], stores, async store => [(await WriteRows.CallAsync(
                    store.Engine, callers, 1, Keys, putsMax: long.MaxValue, run.Plan.Time, _ => new EngineData(run.NextSeed()))).Rate]);
            }
        }
    }
}
