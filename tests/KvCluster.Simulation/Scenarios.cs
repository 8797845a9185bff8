using KvCluster.Replication.Protocol;
using KvCluster.Simulation.Cluster;
using KvCluster.Simulation.Engine;
using KvCluster.Simulation.Protocol;

namespace KvCluster.Simulation;

/// <summary>All scenarios. The weights lean on those that reach windows of a few milliseconds; plain trouble finds plain bugs within few seeds.</summary>
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

    /// <summary>Those that the suite draws for no seed: each was made for one bug.</summary>
    public static IEnumerable<Scenario> NotDrawn => All.Where(static scenario => scenario.Weight == 0);

    /// <summary>What a seed runs, of some scenarios, by their weights.</summary>
    public static Scenario Of(int seed, IReadOnlyList<Scenario> among)
    {
        // Also one that the suite does not run by itself.
        if (among.Count == 1)
            return among[0];
        var left = new SeededRandom((ulong)seed).Between(0, among.Sum(scenario => scenario.Weight));
        return among.First(scenario => (left -= scenario.Weight) < 0);
    }

    /// <summary>The scenario of this name, or those of a fault.</summary>
    /// <param name="name">As in <see cref="All"/>, or a fault's: F1.</param>
    /// <exception cref="ArgumentException">There is none.</exception>
    public static IReadOnlyList<Scenario> Named(string name)
    {
        Scenario[] found = [.. All.Where(scenario => scenario.Name == name || scenario.IsAbout(name))];
        return found.Length > 0 ? found : throw new ArgumentException($"no scenario \"{name}\"; there are: {string.Join(", ", All.Select(scenario => scenario.Name))}, and those of a fault: F1");
    }
}
