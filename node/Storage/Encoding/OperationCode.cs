namespace KvCluster.Storage.Encoding;

/// <summary>First byte of an operation in a payload (FORMAT.md, "Operations").</summary>
internal enum OperationCode : byte
{
    /// <summary>Not an operation.</summary>
    None = 0,

    /// <summary>Sets a key's value.</summary>
    Put = 1,

    /// <summary>Removes a key, which need not exist.</summary>
    Delete = 2,

    /// <summary>Adds a member to a set, which may have it.</summary>
    SetAdd = 3,

    /// <summary>Removes a member from a set, which need not have it.</summary>
    SetRemove = 4,

    /// <summary>Opens a session.</summary>
    SessionOpen = 5,

    /// <summary>The results of a session's requests in this record. Takes no change of its own.</summary>
    Results = 6,

    /// <summary>Ends a session that was idle for too long, or to make room for another one.</summary>
    SessionEnd = 7,

    /// <summary>Removes all keys of a range, which may have none.</summary>
    DeleteRange = 8,

    /// <summary>Removes a set with all its members, or those before one. There need not be any.</summary>
    SetDelete = 9,
}
