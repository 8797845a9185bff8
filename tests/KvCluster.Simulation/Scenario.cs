using KvCluster.Replication;

namespace KvCluster.Simulation;

/// <summary>A named kind of run.</summary>
/// <param name="Name">As given to <c>--scenario</c>.</param>
/// <param name="Faults">What it is about.</param>
/// <param name="Weight">How often the suite runs it, relative to the others.</param>
/// <param name="Create">A run of it from a seed, with a planted bug or none, detailed or not.</param>
internal sealed record Scenario(string Name, string Faults, int Weight, Func<int, PlantedBug, bool, ISimulation> Create);
