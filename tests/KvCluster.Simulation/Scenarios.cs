using KvCluster.Replication.Protocol;
using KvCluster.Simulation.Cluster;
using KvCluster.Simulation.Engine;
using KvCluster.Simulation.Protocol;

namespace KvCluster.Simulation;

/// <summary>All scenarios. The weights favour those that reach windows of a few milliseconds, because common bugs are found within few seeds.</summary>
internal static class Scenarios
{
    public static IReadOnlyList<Scenario> All { get; } =
    [
        .. ProtocolScenario.All.Select(kind => new Scenario(
            kind.Name, kind.Faults, kind.Weight, (seed, bug, detailed) => new SimulationRun(seed, kind, bug, detailed))),
        .. ClusterScenario.All.Select(kind => new Scenario(
            kind.Name, kind.Faults, kind.Weight, (seed, bug, detailed) => new ClusterRun(seed, kind, bug, detailed))),
        .. StoreRun.All,
    ];

    /// <summary>Scenarios that the suite draws for no seed. Each was made for one bug.</summary>
    public static IEnumerable<Scenario> NotDrawn => All.Where(static scenario => scenario.Weight == 0);

    /// <summary>The scenario that a seed runs, drawn from these by weight.</summary>
    public static Scenario Of(int seed, IReadOnlyList<Scenario> among)
    {
        // A single scenario is run even if its weight is 0.
        if (among.Count == 1)
            return among[0];
        var left = new SeededRandom((ulong)seed).Between(0, among.Sum(scenario => scenario.Weight));
        return among.First(scenario => (left -= scenario.Weight) < 0);
    }

    /// <summary>The scenario of this name, or those that test a fault.</summary>
    /// <param name="name">As in <see cref="All"/>, or a fault such as F1.</param>
    /// <exception cref="ArgumentException">There is none.</exception>
    public static IReadOnlyList<Scenario> Named(string name)
    {
        Scenario[] found = [.. All.Where(scenario => scenario.Name == name || scenario.IsAbout(name))];
        return found.Length > 0 ? found : throw new ArgumentException(
            $"no scenario \"{name}\"; known are: {string.Join(", ", All.Select(scenario => scenario.Name))}, and those of a fault: F1");
    }
}
