namespace KvCluster.Node.Telemetry;

/// <summary>How a stream to another node stood at one moment.</summary>
/// <param name="Node">The other one.</param>
/// <param name="IsUp">It is open, and something came on it within the last seconds.</param>
/// <param name="WaitingBytes">Of frames that were not sent yet.</param>
/// <param name="Dropped">Frames that were not taken, since the start.</param>
internal readonly record struct LinkReading(uint Node, bool IsUp, long WaitingBytes, long Dropped);
