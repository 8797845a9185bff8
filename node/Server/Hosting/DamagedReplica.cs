using KvCluster.Node.Shards.Context;
using KvCluster.Storage.Encoding;

namespace KvCluster.Node.Hosting;

/// <summary>
/// What becomes of a replica that was ended by a failure, or could not be opened. If it is lost, because its data is damaged or not trusted, its node asks the
/// shard's leader for a new replica in its place (<c>ReplacementExecution</c>). Otherwise its data is kept.
/// </summary>
internal static class DamagedReplica
{
    /// <summary>Whether the replica cannot serve again, so that only a new one, built from its peers, can replace it.</summary>
    /// <param name="failure">What ended the replica, or why it was not opened; null if it runs.</param>
    public static bool IsLost(Exception? failure) => failure is CorruptStoreException or QuarantinedException or ReplicaNotUsableException { IsLost: true };
}
