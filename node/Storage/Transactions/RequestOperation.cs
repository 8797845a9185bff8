using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Transactions;

/// <summary>
/// First byte of an operation in a <see cref="WriteRequest"/>. Below 128 it is that of a record (<see cref="OperationCode"/>). What depends on the state or the time is
/// from 128 on: it never leaves the process, and <see cref="RequestExecution"/> makes an operation for the record of it.
/// </summary>
internal enum RequestOperation : byte
{
    /// <summary>Sets a key's value.</summary>
    Put = OperationCode.Put,

    /// <summary>Removes a key.</summary>
    Delete = OperationCode.Delete,

    /// <summary>Adds a member to a set.</summary>
    SetAdd = OperationCode.SetAdd,

    /// <summary>Removes a member from a set.</summary>
    SetRemove = OperationCode.SetRemove,

    /// <summary>Opens a session.</summary>
    SessionOpen = OperationCode.SessionOpen,

    /// <summary>Ends a session.</summary>
    SessionEnd = OperationCode.SessionEnd,

    /// <summary>Says that nothing is recorded of what is left of a session's lifetime.</summary>
    SessionLeft = OperationCode.SessionLeft,

    /// <summary>Removes all keys of a range.</summary>
    DeleteRange = OperationCode.DeleteRange,

    /// <summary>Removes a set.</summary>
    SetDelete = OperationCode.SetDelete,

    /// <summary>Sets the value of a key that expires, belongs to a session or gets a number.</summary>
    PutOnTerms = 128,

    /// <summary>Adds to a number.</summary>
    Increment = 129,

    /// <summary>Sets when a key expires, counted from now.</summary>
    Touch = 130,

    /// <summary>Reads a key.</summary>
    Get = 131,

    /// <summary>Reads a range.</summary>
    Scan = 132,

    /// <summary>Reads a set: the number of its members, and whether it has one.</summary>
    SetGet = 133,
}

/// <summary>What a put asks for besides the value.</summary>
/// <param name="TtlMilliseconds">How long the key lives; 0 = until it is deleted.</param>
/// <param name="Owner">The session with which the key ends; 0 = none.</param>
/// <param name="IsNumbered">Whether the key is a prefix to which the next number is appended.</param>
internal readonly record struct PutTerms(ulong TtlMilliseconds, UInt128 Owner, bool IsNumbered)
{
    /// <summary>Whether it is an ordinary put.</summary>
    public bool AreNone => TtlMilliseconds == 0 && Owner == 0 && !IsNumbered;
}
