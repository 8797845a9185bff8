namespace KvCluster.Client;

/// <summary>The answer to a read of one key.</summary>
/// <param name="Found">Whether the key exists.</param>
/// <param name="Value">Its value; empty if it does not.</param>
/// <param name="Etag">The etag of the change that set the value.</param>
/// <param name="Position">The state that the answer was read from.</param>
public readonly record struct GetResult(bool Found, ReadOnlyMemory<byte> Value, Etag Etag, ShardPosition Position)
{
    /// <summary>
    /// For a <see cref="KvReadMode.Stale"/> read: for how long the answer may have been out of date, as far as the replica can know. Null if the replica has
    /// not heard from a leader since it started, or if the read was in another mode.
    /// </summary>
    public TimeSpan? Age { get; init; }
}
