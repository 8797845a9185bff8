namespace KvCluster.Simulation.Protocol;

/// <summary>A run failed; the message names the seed that replays it and ends with the run's trace.</summary>
internal sealed class SimulationFailedException(string message, Exception first) : Exception(message, first);
