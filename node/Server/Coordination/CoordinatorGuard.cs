namespace KvCluster.Node.Coordination;

/// <summary>
/// What a compare-and-set also compares: that the cluster's record is the one that its caller goes by. So it never changes a store that was restored or rebuilt
/// meanwhile, even if the revisions are the same by chance. It must be the guard of the time at which the expected revision was read. Or, while there is no
/// such record, that nothing was put under a prefix since it was listed. That a running node's store was restored is noticed by <c>EtcdRestoreCheck</c>.
/// </summary>
/// <param name="Key">The key of the cluster's record, or that prefix.</param>
/// <param name="Value">Its value, exactly as it was read.</param>
/// <param name="Recovery">The recovery in it.</param>
internal sealed record CoordinatorGuard(string Key, string Value, RecoveryNumber Recovery)
{
    /// <summary>Why an operator's change was not made whose guard does not hold.</summary>
    public const string WhyNotChanged =
        "the coordinator's records are not those that this node goes by; they were rebuilt a moment ago, or are to be rebuilt. Ask again, and see kv doctor";

    /// <summary>
    /// Of a prefix, the revision at which it was listed. A key that was put later breaks the guard, one that was removed does not. Null: a key's value is
    /// compared.
    /// </summary>
    public long? UnchangedSince { get; private init; }

    /// <summary>Holds as long as nothing is put under a prefix.</summary>
    /// <param name="prefix">The prefix.</param>
    /// <param name="revision">The revision of the list.</param>
    public static CoordinatorGuard OfPrefix(string prefix, long revision) => new(prefix, "", default) { UnchangedSince = revision };

    /// <summary>Whether the guard holds.</summary>
    /// <param name="found">What is at its key, or under its prefix.</param>
    public bool Holds(IEnumerable<CoordinatorChange> found) => UnchangedSince is { } revision
        ? found.All(entry => entry.ModRevision <= revision)
        : found.SingleOrDefault().Value == Value;

    /// <summary>The guard does not hold, so nothing was changed.</summary>
    public CoordinatorGuardException Broken() => new(UnchangedSince is null
        ? $"the coordinator's record {Key} is not the one that this node goes by; it was restored, replaced or deleted. Nothing was changed."
        : $"the coordinator's keys {Key} were changed since they were read. Nothing was changed.");
}
