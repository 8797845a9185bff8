namespace KvCluster.Client;

/// <summary>The answer to a read of one key.</summary>
/// <param name="Found">Whether the key exists.</param>
/// <param name="Value">Its value; empty if it does not.</param>
/// <param name="Etag">Of the change that set the value.</param>
/// <param name="Position">What the answer was evaluated on.</param>
public readonly record struct GetResult(bool Found, ReadOnlyMemory<byte> Value, Etag Etag, ShardPosition Position)
{
    /// <summary>
    /// Of a <see cref="KvReadMode.Stale"/> read: for how long the answer may be out of date, as far as the replica can know; null: it has heard of no
    /// leader since its start, or the read was of another mode.
    /// </summary>
    public TimeSpan? Age { get; init; }
}
