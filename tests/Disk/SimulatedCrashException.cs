namespace KvCluster.Disk;

/// <summary>The simulated machine has lost power: no call reaches the disk until it is restarted.</summary>
internal sealed class SimulatedCrashException() : IOException("The simulated machine has lost power.");
