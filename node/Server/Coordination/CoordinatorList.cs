namespace KvCluster.Node.Coordination;

/// <summary>What a list gave: entries in key order, all at one revision of the store.</summary>
internal sealed record CoordinatorList(IReadOnlyList<CoordinatorChange> Entries, long Revision);
