using KvCluster.Replication;
using KvCluster.Simulation.Cluster;
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
    ];

    private static readonly int WeightTotal = All.Sum(scenario => scenario.Weight);

    /// <summary>The scenario that a seed runs when none is named.</summary>
    public static Scenario Of(int seed)
    {
        var left = new SeededRandom((ulong)seed).Between(0, WeightTotal);
        return All.First(scenario => (left -= scenario.Weight) < 0);
    }

    /// <summary>The scenario of this name.</summary>
    /// <exception cref="ArgumentException">There is none.</exception>
    public static Scenario Named(string name) =>
        All.FirstOrDefault(scenario => scenario.Name == name)
        ?? throw new ArgumentException($"no scenario \"{name}\"; there are: {string.Join(", ", All.Select(scenario => scenario.Name))}");
}
