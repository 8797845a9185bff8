// Whether a cluster may be created, by what the nodes say that wait for its record (WaitingNotice). If the coordinator has lost its data, a second cluster of
// the same name would stand in the way of a recovery of the first one. Read by whoever creates a cluster.
namespace KvCluster.Node.Coordination;

/// <summary>What all waiting nodes say, at one revision of the coordinator.</summary>
internal sealed class WaitingNodes
{
    /// <summary>What a node says that has no data.</summary>
    public const string Empty = "empty";

    private readonly SortedDictionary<NodeId, string> _said = [];

    private WaitingNodes(CoordinatorKeys keys, CoordinatorList list)
    {
        Guard = CoordinatorGuard.OfPrefix(keys.Waiting, list.Revision);
        foreach (var entry in list.Entries)
        {
            if (entry.Value is not null && CoordinatorKeys.TryParseId(entry.Key, keys.Waiting, out var node))
                _said[new(node)] = entry.Value;
        }
    }

    /// <summary>Holds until a node says something else. Every record of a new cluster is put under it.</summary>
    public CoordinatorGuard Guard { get; }

    /// <summary>Reads it.</summary>
    /// <exception cref="CoordinatorUnavailableException">No answer.</exception>
    public static async Task<WaitingNodes> ReadAsync(ICoordinator coordinator, CoordinatorKeys keys, CancellationToken cancellationToken) =>
        new(keys, await coordinator.ListAsync(keys.Waiting, cancellationToken).ConfigureAwait(false));

    /// <summary>Why nobody may create a cluster: nodes have data of one. Null if none has.</summary>
    public string? WhyLost()
    {
        var nodes = string.Join(", ", _said.Where(static said => said.Value != Empty).Select(static said => $"{said.Key} (cluster {said.Value})"));
        return nodes.Length == 0
            ? null
            : $"nodes have data of a cluster of this name, of which the coordinator has lost the record: {nodes}. So no new one was created, and nothing was "
                + "changed. Rebuild the record from the nodes: kv admin coordinator recover. If their data is not needed, stop them and move their data "
                + "directories away, and ten seconds later a new cluster can be created; or take another name for it";
    }

    /// <summary>Why the first nodes do not create a cluster yet: some have not said that they have no data. Null if all have.</summary>
    /// <param name="first">The first nodes.</param>
    public string? WhyIncomplete(IReadOnlyList<NodeId> first)
    {
        var missing = string.Join(", ", first.Where(node => _said.GetValueOrDefault(node) != Empty));
        return missing.Length == 0
            ? null
            : $"it is created once all nodes of bootstrap-nodes have started with empty data directories, and these have not: {missing}. "
                + "If there was a cluster, start the nodes that have its data, and rebuild its record: kv admin coordinator recover";
    }
}
