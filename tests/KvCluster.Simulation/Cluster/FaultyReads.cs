using KvCluster.Node.Shards;
using KvCluster.Node.Shards.Reads;
using KvCluster.Storage.DataFile;

namespace KvCluster.Simulation.Cluster;

/// <summary>
/// Reads under the lease with one of the mistakes that <see cref="ReplicaReads.TryOpenLinearizable"/> avoids, by a thread that the machine may stall
/// between the two looks.
/// </summary>
internal static class FaultyReads
{
    /// <summary>Several leases: others are elected meanwhile, and this leader perhaps again.</summary>
    public const long HeldUpMaxUs = 1_000_000;

    /// <summary>How long before a read its lease is checked.</summary>
    public const long EarlierUs = 1_000_000;

    public static void OpenByLease(ClusterNode node, ShardReplica replica, InjectedBug bug, long heldUpUs, Action<ReadSnapshot, ulong?> read, Action refused)
    {
        if (bug == InjectedBug.LeaseOfAnotherEpoch)
        {
            var early = replica.Reads.OpenSnapshot();
            node.Events.InThisProcess(heldUpUs, () =>
            {
                if (Holds(replica))
                    read(early, null);
                else
                    refused();
            });
        }
        else if (Holds(replica))
        {
            node.Events.InThisProcess(heldUpUs, () => read(replica.Reads.OpenSnapshot(), null));
        }
        else
        {
            refused();
        }
    }

    private static bool Holds(ShardReplica replica)
    {
        if (!replica.Reads.TryOpenLinearizable(out var snapshot))
            return false;
        snapshot.Dispose();
        return true;
    }
}
