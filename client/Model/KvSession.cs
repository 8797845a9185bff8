namespace KvCluster.Client;

/// <summary>A session that owns keys of its shard. Whoever knows its id can make changes in it, so keep it like a password.</summary>
/// <param name="Key">A key of the shard in which it was opened, by which its calls are routed.</param>
/// <param name="Id">16 bytes.</param>
/// <param name="Lifetime">How long it lives after it was opened or last kept alive.</param>
public sealed record KvSession(ReadOnlyMemory<byte> Key, ReadOnlyMemory<byte> Id, TimeSpan Lifetime);
