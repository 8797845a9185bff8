namespace KvCluster.Node.Telemetry;

/// <summary>How far a follower was behind its leader at one moment.</summary>
/// <param name="Node">Where it is.</param>
/// <param name="LagBytes">Journal that it has not acknowledged; as far as the leader's reaches back.</param>
/// <param name="LagChanges">Changes that it has not acknowledged.</param>
internal readonly record struct FollowerReading(uint Node, long LagBytes, long LagChanges);
