using System.Diagnostics;
using System.Globalization;

namespace KvCluster.Simulation;

/// <summary>
/// The simulation as a program: <c>dotnet run -c Release --project tests/KvCluster.Simulation -- --seeds N --first SEED [--scenario NAME] [--bug NAME]
/// [--fail-fast]</c>. Exit code 0 only if every rule held in every seed, 1 if not, 2 for bad arguments.
/// </summary>
internal static class Program
{
    private const int ReportsMax = 3;

    public static int Main(string[] arguments)
    {
        CultureInfo.CurrentCulture = CultureInfo.InvariantCulture;
        SimulationArguments parsed;
        try
        {
            parsed = SimulationArguments.Parse(arguments);
        }
        catch (ArgumentException bad)
        {
            Console.Error.WriteLine($"{bad.Message}\n{SimulationArguments.Usage}");
            return 2;
        }

        var watch = Stopwatch.StartNew();
        var results = Suite.Run(parsed.First, parsed.Seeds, parsed.Scenarios, parsed.Bug, parsed.StopsAtFailure);
        var tally = Suite.Sum(results);
        Print(results, tally, watch.Elapsed);
        // Some scenarios or few seeds need not see every fault and rule.
        var missing =
            parsed.Scenarios is null && parsed.Bug == InjectedBug.None && parsed.Seeds >= Suite.SeedsForAll ? tally.Missing.Select(Tally.NameOf).ToArray() : [];
        if (missing.Length > 0)
            Console.WriteLine($"never happened, so nothing was shown about it: {string.Join(", ", missing)}");
        return results.All(result => result.Broken is null) && missing.Length == 0 ? 0 : 1;
    }

    private static void Print(IReadOnlyList<SeedResult> results, Tally tally, TimeSpan took)
    {
        var failed = results.Where(result => result.Broken is not null).ToArray();
        foreach (var result in failed.Take(ReportsMax))
            Console.WriteLine(result.Report());
        foreach (var result in failed)
            Console.WriteLine($"failed: seed {result.Seed}, scenario {result.Scenario.Name}, {result.Broken}: {result.What}");
        foreach (var scenario in results.GroupBy(result => result.Scenario).OrderBy(group => group.Key.Name, StringComparer.Ordinal))
            Console.WriteLine(
                $"{scenario.Key.Name,-22} {scenario.Count(),6} seeds  {scenario.Count(result => result.Broken is not null),4} failed  {scenario.Key.Faults}");
        var steps = results.Sum(result => result.Steps);
        var simulatedHours = results.Sum(result => result.SimulatedUs) / 3.6e9;
        Console.WriteLine(tally);
        Console.WriteLine(results.Aggregate(default(Activity), (sum, result) => sum + result.Activity));
        Console.WriteLine(
            $"{results.Count} seeds, {failed.Length} failed, {steps} steps, {simulatedHours:F2} simulated hours in {took.TotalSeconds:F1} s: "
            + $"{simulatedHours / took.TotalHours:F0} simulated hours an hour");
        // The same seeds take the same courses, unless what they run has changed: so a change of structure alone is shown to be none of behaviour.
        Console.WriteLine($"courses: {results.Aggregate(0UL, static (sum, result) => (sum * 0x100000001b3) ^ result.Hash):x16}");
    }
}
