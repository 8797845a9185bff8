namespace KvCluster;

/// <summary>
/// The limits of keys, values and requests that kv.proto states. Clients and tools check them before they send, routers and nodes when they receive, and the
/// engine when it stores.
/// </summary>
internal static class KvLimits
{
    /// <summary>Longest key, in bytes. A key has at least one.</summary>
    public const int KeyBytesMax = 2_048;

    /// <summary>
    /// Longest start or end of a range of keys, in bytes: one more than a key, so that the least key after any key can be named, which is the key and a zero
    /// byte.
    /// </summary>
    public const int BoundBytesMax = KeyBytesMax + 1;

    /// <summary>Longest member of a set, in bytes. A member has at least one.</summary>
    public const int MemberBytesMax = 1_024;

    /// <summary>Longest member at which a page of a set begins, in bytes, for the same reason.</summary>
    public const int MemberBoundBytesMax = MemberBytesMax + 1;

    /// <summary>Longest value, in bytes.</summary>
    public const int ValueBytesMax = 8 << 20;

    /// <summary>Largest change, in bytes of its encoded operations and conditions.</summary>
    public const int WriteBytesMax = 16 << 20;

    /// <summary>Most operations or conditions of a Write, and most keys of a GetMany.</summary>
    public const int KeysMax = 10_000;

    /// <summary>
    /// Most operations of a Write, or of each list of a Transact, that returns a result for each. Without what it reads, such a response is small enough to be
    /// sent whatever memory is left.
    /// </summary>
    public const int ResultsMax = 512;

    /// <summary>Most bytes of the results of a Write or Transact.</summary>
    public const int ResultsBytesMax = 4 << 20;

    /// <summary>Most bytes of the results of a Write or Transact with a request id, which are kept with it.</summary>
    public const int KeptResultsBytesMax = 256 << 10;

    /// <summary>Most entries that a scan within a Write or Transact returns.</summary>
    public const int ScanEntriesMax = 1_000;

    /// <summary>Entries of a page of a List that states no limit.</summary>
    public const int ListEntriesDefault = 1_000;

    /// <summary>Most entries of a page of a List.</summary>
    public const int ListEntriesMax = 10_000;

    /// <summary>Bytes of keys and values of a page of a List that states no limit.</summary>
    public const int ListBytesDefault = 1 << 20;

    /// <summary>Most bytes of keys and values of a page of a List. Whoever asks for more gets this much, or a little less, because a message has it.</summary>
    public const int ListBytesMax = 4 << 20;

    /// <summary>Most keys that the conditions of a request read in ranges.</summary>
    public const int ConditionKeysMax = 10_000;

    /// <summary>Longest time to live of a key, in milliseconds: about 100 years.</summary>
    public const ulong TtlMillisecondsMax = 100UL * 365 * 24 * 3_600 * 1_000;

    /// <summary>Most conditions on ranges of a request. The count of a range visits its pages that no checkpoint has, on the thread that writes.</summary>
    public const int RangeConditionsMax = 64;

    /// <summary>Largest response of a GetMany, in bytes.</summary>
    public const int AnswerBytesMax = 16 << 20;
}
