namespace KvCluster.Client;

/// <summary>A session that owns keys of its shard. Whoever knows its id can make changes in it, so keep it like a password.</summary>
/// <param name="Key">A key of the shard in which it was opened, by which its calls are routed.</param>
/// <param name="Id">16 bytes.</param>
/// <param name="Lifetime">How long it lives after it was opened or last kept alive.</param>
public sealed record KvSession(KvKey Key, ReadOnlyMemory<byte> Id, TimeSpan Lifetime)
{
    /// <summary>
    /// The etag of its opening, by which reads name it as the owner of a key (<see cref="KvLife.Owner"/>) without telling its id. All zero if it was not opened
    /// by this client.
    /// </summary>
    public Etag Opened { get; init; }
}
