using System.Collections.Concurrent;

namespace KvCluster.Simulation;

/// <summary>Runs seeds, each on one thread, several at a time. The program and the tests use only this.</summary>
internal static class Suite
{
    /// <summary>This many seeds of all scenarios must have seen every fault and every rule. The rarest occurs about once in a hundred.</summary>
    public const int SeedsForAll = 1_500;

    /// <summary>Runs one seed. A seed that fails is run again in detail, which must take the same course.</summary>
    public static SeedResult RunSeed(int seed, Scenario scenario, InjectedBug bug)
    {
        var result = RunOnce(seed, scenario, bug, detailed: false);
        if (result.Broken is null)
            return result;
        var again = RunOnce(seed, scenario, bug, detailed: true);
        return again.Hash == result.Hash
            ? again
            : again with { What = $"{result.What} (and the second run took another course: something is not deterministic)" };
    }

    /// <summary>The sum of what happened in all of these.</summary>
    public static Tally Sum(IEnumerable<SeedResult> results)
    {
        var sum = new Tally();
        foreach (var result in results)
            sum.Add(result.Tally);
        return sum;
    }

    /// <summary>Runs seeds that follow one another, in order.</summary>
    /// <param name="first">The first seed.</param>
    /// <param name="count">The number of seeds.</param>
    /// <param name="scenarios">The scenarios to draw from by weight, or null for all.</param>
    /// <param name="bug">Injected into all of them.</param>
    /// <param name="stopAtFailure">Run no seeds after the first one that fails.</param>
    public static IReadOnlyList<SeedResult> Run(int first, int count, IReadOnlyList<Scenario>? scenarios, InjectedBug bug, bool stopAtFailure) =>
        Run(Enumerable.Range(first, count), scenarios, bug, stopAtFailure);

    /// <summary>The same for any seeds, from the smallest on.</summary>
    public static IReadOnlyList<SeedResult> Run(IEnumerable<int> ascending, IReadOnlyList<Scenario>? scenarios, InjectedBug bug, bool stopAtFailure)
    {
        var results = new ConcurrentBag<SeedResult>();
        // One by one, so that all seeds below a failing one have run, and "the first" is the smallest.
        var seeds = Partitioner.Create(ascending, EnumerablePartitionerOptions.NoBuffering);
        Parallel.ForEach(seeds, new ParallelOptions { MaxDegreeOfParallelism = Environment.ProcessorCount }, (seed, state) =>
        {
            var result = RunSeed(seed, Scenarios.Of(seed, scenarios ?? Scenarios.All), bug);
            results.Add(result);
            if (stopAtFailure && result.Broken is not null)
                state.Stop();
        });
        return [.. results.OrderBy(result => result.Seed)];
    }

    private static SeedResult RunOnce(int seed, Scenario scenario, InjectedBug bug, bool detailed)
    {
        Violation.BeginCounting();
        var simulation = scenario.Create(seed, bug, detailed);
        Rule? broken = null;
        var what = "";
        try
        {
            simulation.Run();
        }
        catch (Violation violation)
        {
            (broken, what) = (violation.Rule, violation.Message);
        }
        catch (InvariantException violation)
        {
            (broken, what) = (Rule.Invariant, violation.Message);
        }
        catch (Exception unexpected)
        {
            // Thrown by the code under test or by the simulation itself. Either way this seed has failed and must be reported.
            (broken, what) = (Rule.GoesOn, unexpected.ToString());
        }

        var transcript = simulation.Transcript;
        var text = detailed ? $"{transcript}\n{simulation.Describe()}" : "";
        Violation.CountInto(simulation.Tally);
        return new SeedResult(seed, scenario, transcript.Steps, simulation.NowUs, transcript.Hash, simulation.Activity, simulation.Tally, broken, what, text);
    }
}
