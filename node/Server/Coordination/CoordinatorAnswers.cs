namespace KvCluster.Node.Coordination;

/// <summary>What a read of one key gave.</summary>
/// <param name="Value">Null: the key is absent.</param>
/// <param name="ModRevision">Revision of the change that set it; 0: absent.</param>
/// <param name="Revision">Revision of the store that was read.</param>
internal readonly record struct CoordinatorRead(string? Value, long ModRevision, long Revision);

/// <summary>What a list gave: entries in key order, all at one revision of the store.</summary>
internal sealed record CoordinatorList(IReadOnlyList<CoordinatorChange> Entries, long Revision);

/// <summary>A key's value as of a revision.</summary>
/// <param name="Value">Null: the key was deleted.</param>
/// <param name="ModRevision">Revision of the change.</param>
internal readonly record struct CoordinatorChange(string Key, string? Value, long ModRevision);
