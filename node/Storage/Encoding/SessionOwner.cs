namespace KvCluster.Storage.Encoding;

/// <summary>Whose share of a shard's sessions one counts towards: numbers that the API makes of who calls. Two callers with one number share what is theirs.</summary>
/// <param name="Value">The caller of the node in the upper half; which of its own callers it named, if it is a router, in the lower.</param>
internal readonly record struct SessionOwner(ulong Value)
{
    /// <summary>An owner by its parts.</summary>
    public SessionOwner(uint peer, uint caller)
        : this(((ulong)peer << 32) | caller)
    {
    }

    /// <summary>The caller of the node.</summary>
    public uint Peer => (uint)(Value >> 32);
}
