namespace KvCluster.Client;

/// <summary>The answer to a read of one key.</summary>
/// <param name="Found">Whether the key exists.</param>
/// <param name="Value">Its value; empty if it does not.</param>
/// <param name="Etag">Of the change that set the value.</param>
/// <param name="Position">What the answer was evaluated on.</param>
public readonly record struct GetResult(bool Found, ReadOnlyMemory<byte> Value, Etag Etag, ShardPosition Position);
