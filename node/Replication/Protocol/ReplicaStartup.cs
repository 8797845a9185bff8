using KvCluster.Internal.V1;

namespace KvCluster.Replication.Protocol;

/// <summary>What a replica knows of itself when its process starts.</summary>
/// <param name="Shard">The shard's id.</param>
/// <param name="Incarnation">Non-zero, and greater at each start of the process. Distinguishes a restarted replica from the process before.</param>
/// <param name="Control">The control file as recovered. A leadership that it names ended with its process.</param>
/// <param name="Applied">What recovery has applied: the lower bound of what this replica knows to be committed.</param>
/// <param name="Record">The shard's record last seen.</param>
/// <param name="Revision">Its mod revision.</param>
/// <param name="Seed">For the random timeouts.</param>
/// <param name="NowUs">The boot clock.</param>
internal sealed record ReplicaStartup(
    ShardId Shard, ulong Incarnation, HardState Control, Etag Applied, ShardRecord Record, long Revision, ulong Seed, long NowUs);
