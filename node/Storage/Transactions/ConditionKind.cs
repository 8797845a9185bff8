namespace KvCluster.Storage.Transactions;

/// <summary>What must hold for a key, in the newest state before the request, for the request to be applied.</summary>
internal enum ConditionKind : byte
{
    /// <summary>The key was last written by the change with this etag. Etag 0 means that the key is absent.</summary>
    EtagEquals,

    /// <summary>The key exists.</summary>
    Exists,

    /// <summary>The key does not exist.</summary>
    Absent,

    /// <summary>The key exists and has exactly these bytes as its value.</summary>
    ValueEquals,
}
