using System.Globalization;

namespace KvCluster.Node.Coordination;

/// <summary>The keys of a cluster's records in the coordinator.</summary>
internal sealed class CoordinatorKeys(string cluster)
{
    /// <summary>End of the keys made by <see cref="Starts"/>.</summary>
    public const string StartsSuffix = "/starts";

    /// <summary>Prefix of all keys of the cluster.</summary>
    public string Root { get; } = $"/kvcluster/{cluster}/";

    /// <summary>The cluster's own record.</summary>
    public string Cluster => Root + "cluster";

    /// <summary>The process that moves replicas; under a lease.</summary>
    public string Controller => Root + "controller";

    /// <summary>The recovery of the records that was begun last.</summary>
    public string Recovery => Root + "recovery";

    /// <summary>Where replicas may be placed, as set by operators.</summary>
    public string Placement => Root + "placement";

    /// <summary>When the coordinator's data was last saved: seconds since 1970 UTC as a decimal number, so that any script can put it.</summary>
    public string Snapshot => Root + "snapshot";

    /// <summary>Prefix of what nodes say that wait for the cluster's record (<see cref="WaitingNotice"/>); under leases.</summary>
    public string Waiting => Root + "waiting/";

    /// <summary>Prefix of the records of all nodes.</summary>
    public string Nodes => Root + "nodes/";

    /// <summary>Prefix of the records of all shards.</summary>
    public string Shards => Root + "shards/";

    public string WaitingOf(NodeId node) => string.Create(CultureInfo.InvariantCulture, $"{Waiting}{node}");

    public string Node(NodeId node) => string.Create(CultureInfo.InvariantCulture, $"{Nodes}{node}");

    public string Starts(NodeId node) => string.Create(CultureInfo.InvariantCulture, $"{Nodes}{node}{StartsSuffix}");

    public string Shard(ShardId shard) => string.Create(CultureInfo.InvariantCulture, $"{Shards}{shard}");

    /// <summary>The id in a key made by <see cref="Node"/>, <see cref="Shard"/> or <see cref="WaitingOf"/>.</summary>
    public static bool TryParseId(string key, string prefix, out uint id)
    {
        id = 0;
        return key.StartsWith(prefix, StringComparison.Ordinal)
            && uint.TryParse(key.AsSpan(prefix.Length), NumberStyles.None, CultureInfo.InvariantCulture, out id);
    }
}
