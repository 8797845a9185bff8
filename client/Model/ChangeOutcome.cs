namespace KvCluster.Client;

/// <summary>What became of the change that an error speaks of.</summary>
public enum ChangeOutcome
{
    /// <summary>It was certainly not applied. True of every failed read.</summary>
    NotApplied,

    /// <summary>It may have been applied, or may still be.</summary>
    Unknown,
}
