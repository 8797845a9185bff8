using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Transactions;

/// <summary>
/// First byte of an operation in a <see cref="WriteRequest"/>. Below 128 it is that of a record (<see cref="OperationCode"/>). What depends on the state or the
/// time is from 128 on: it never leaves the process, and <see cref="RequestExecution"/> makes an operation for the record of it.
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

    /// <summary>Sets the value of a key that expires, belongs to a session, keeps either, or gets a number.</summary>
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
/// <param name="KeepsExpiry">Whether the key keeps the expiry that it has. Not with a time to live or a number.</param>
/// <param name="KeepsOwner">Whether the key keeps the session that owns it. Not with an owner or a number.</param>
internal readonly record struct PutTerms(ulong TtlMilliseconds, UInt128 Owner, bool IsNumbered, bool KeepsExpiry = false, bool KeepsOwner = false)
{
    private const byte NumberedFlag = 1;
    private const byte KeepsExpiryFlag = 2;
    private const byte KeepsOwnerFlag = 4;

    /// <summary>Reads the terms that <see cref="Flags"/> has, beside the others.</summary>
    public PutTerms(ulong ttlMilliseconds, UInt128 owner, byte flags)
        : this(ttlMilliseconds, owner, (flags & NumberedFlag) != 0, (flags & KeepsExpiryFlag) != 0, (flags & KeepsOwnerFlag) != 0)
    {
    }

    /// <summary>Whether there are no terms, as for an ordinary put.</summary>
    public bool AreNone => TtlMilliseconds == 0 && Owner == 0 && Flags == 0;

    /// <summary>Whether the life of the new value depends on what the key has.</summary>
    public bool Keeps => KeepsExpiry || KeepsOwner;

    /// <summary>The terms that are yes or no, as a request has them.</summary>
    public byte Flags => (byte)((IsNumbered ? NumberedFlag : 0) | (KeepsExpiry ? KeepsExpiryFlag : 0) | (KeepsOwner ? KeepsOwnerFlag : 0));
}
