namespace KvCluster.Storage.Transactions;

/// <summary>What must hold of a key, in the newest state before the request, for the request to be applied.</summary>
internal enum ConditionKind : byte
{
    /// <summary>The key was last written by the change with this etag; etag 0: the key is absent.</summary>
    EtagEquals,

    /// <summary>The key is there.</summary>
    Exists,

    /// <summary>The key is not there.</summary>
    Absent,

    /// <summary>The key is there with exactly these bytes.</summary>
    ValueEquals,
}
