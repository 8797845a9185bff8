using KvCluster.Internal.V1;
using KvCluster.Storage.Control;

namespace KvCluster.Node.Shards;

/// <summary>What binds a running replica, between two of its events.</summary>
/// <param name="Control">Its control file, as it is on the disk.</param>
/// <param name="Record">The shard's record that it goes by. Must not be modified.</param>
/// <param name="Epoch">The epoch that it obeys or leads.</param>
/// <param name="Leads">Whether it leads that epoch and serves.</param>
/// <param name="Incarnation">Its process.</param>
internal sealed record ReplicaPromises(ControlState Control, ShardRecord Record, ulong Epoch, bool Leads, ulong Incarnation);
