namespace KvCluster.Storage.Encoding;

/// <summary>
/// The owner to whose share of a shard's sessions a session counts. The API derives the numbers from the caller. Callers with the same number share one
/// quota.
/// </summary>
/// <param name="Value">
/// Upper half: the peer that called the node. Lower half: the caller that the peer named, if it is a router, and otherwise its connection.
/// </param>
internal readonly record struct QuotaOwner(ulong Value)
{
    /// <summary>An owner from its parts.</summary>
    public QuotaOwner(uint peer, uint caller)
        : this(((ulong)peer << 32) | caller)
    {
    }

    /// <summary>The peer that called the node.</summary>
    public uint Peer => (uint)(Value >> 32);
}
