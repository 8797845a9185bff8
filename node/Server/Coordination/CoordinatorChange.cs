namespace KvCluster.Node.Coordination;

/// <summary>A key's value as of a revision.</summary>
/// <param name="Value">Null: the key was deleted.</param>
/// <param name="ModRevision">Revision of the change.</param>
internal readonly record struct CoordinatorChange(string Key, string? Value, long ModRevision);
