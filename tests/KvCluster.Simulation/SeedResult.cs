namespace KvCluster.Simulation;

/// <summary>How one seed ended.</summary>
/// <param name="Seed">The seed.</param>
/// <param name="Scenario">The scenario that it ran.</param>
/// <param name="Steps">The number of events.</param>
/// <param name="SimulatedUs">Time in the run.</param>
/// <param name="Hash">A hash of the whole transcript.</param>
/// <param name="Activity">What it did.</param>
/// <param name="Tally">Faults that took effect, and rules that were tested.</param>
/// <param name="Broken">The rule that did not hold, or null.</param>
/// <param name="What">How it was broken.</param>
/// <param name="Text">The last lines of the transcript, if a rule was broken.</param>
internal sealed record SeedResult(
    int Seed, Scenario Scenario, long Steps, long SimulatedUs, ulong Hash, Activity Activity, Tally Tally, Rule? Broken, string What, string Text)
{
    /// <summary>A report for a developer: what happened, how to repeat it, the transcript.</summary>
    public string Report() =>
        $"seed {Seed} of scenario {Scenario.Name} breaks {Broken}: {What}\n{Text}\n"
        + $"again: dotnet run -c Release --project tests/KvCluster.Simulation -- --seeds 1 --first {Seed} --scenario {Scenario.Name}\n";
}
