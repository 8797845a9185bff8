namespace KvCluster.Storage.Encoding;

/// <summary>First byte of an operation in a payload (FORMAT.md, "Operations").</summary>
internal enum OperationCode : byte
{
    /// <summary>No operation.</summary>
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

    /// <summary>Sets or removes the expiry of a key, which need not exist.</summary>
    Touch = 10,

    /// <summary>Removes a key that has expired.</summary>
    Expire = 11,

    /// <summary>Removes an expiry whose key was removed or written since by an operation that left it.</summary>
    ForgetExpiry = 12,

    /// <summary>Sets the value of a key that ends with the next number under a prefix.</summary>
    PutNumbered = 13,

    /// <summary>Removes a key that a session owned which ends in the same record.</summary>
    DeleteOwned = 14,

    /// <summary>Removes what a session owns of a key that was removed or written since by an operation that left it.</summary>
    ForgetOwned = 15,

    /// <summary>Says how much of a session's lifetime is left if its caller stays silent, or that nothing is said of it any more.</summary>
    SessionLeft = 16,
}
