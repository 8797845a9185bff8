namespace KvCluster.Node.Coordination;

/// <summary>What a read of one key gave.</summary>
/// <param name="Value">Null: the key is absent.</param>
/// <param name="ModRevision">Revision of the change that set it; 0: absent.</param>
/// <param name="Revision">Revision of the store that was read.</param>
internal readonly record struct CoordinatorRead(string? Value, long ModRevision, long Revision);
