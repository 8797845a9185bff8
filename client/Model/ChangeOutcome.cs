namespace KvCluster.Client;

/// <summary>The outcome of the change that an error is about.</summary>
public enum ChangeOutcome
{
    /// <summary>It was certainly not applied. Every failed read has this outcome.</summary>
    NotApplied,

    /// <summary>It may have been applied, or may still be applied.</summary>
    Unknown,
}
