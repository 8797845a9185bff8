namespace KvCluster.Storage.Sessions;

/// <summary>How an identified request ended, as stored in records and in the tree (FORMAT.md, "Results").</summary>
internal enum ResultKind : byte
{
    /// <summary>It has no result yet.</summary>
    None = 0,

    /// <summary>Applied.</summary>
    Applied = 1,

    /// <summary>Applied, and a key that it deletes existed.</summary>
    AppliedToExisting = 2,

    /// <summary>A condition did not hold.</summary>
    ConditionFailed = 3,
}
