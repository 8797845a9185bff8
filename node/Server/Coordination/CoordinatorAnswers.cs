using KvCluster.Replication.Protocol;

namespace KvCluster.Node.Coordination;

/// <summary>The result of reading one key.</summary>
/// <param name="Value">The value; null if the key is absent.</param>
/// <param name="ModRevision">Revision of the change that set it; 0 if absent.</param>
/// <param name="Revision">Revision of the store at the read.</param>
internal readonly record struct CoordinatorRead(string? Value, long ModRevision, long Revision);

/// <summary>The result of a list: entries in key order, all at one revision of the store.</summary>
internal sealed record CoordinatorList(IReadOnlyList<CoordinatorChange> Entries, long Revision);

/// <summary>A key's value as of a revision.</summary>
/// <param name="Value">The value; null if the key was deleted.</param>
/// <param name="ModRevision">Revision of the change.</param>
internal readonly record struct CoordinatorChange(string Key, string? Value, long ModRevision);

/// <summary>The result of one attempt of a compare-and-set. <paramref name="Revision"/> is the new mod revision when won.</summary>
internal readonly record struct CompareAndSetResult(SetOutcome Outcome, long Revision);
