using KvCluster.Client;

namespace KvCluster.ClusterTests.History;

/// <summary>The operations of a history. Two ways to call them: the client library, and unary calls of a generated stub.</summary>
internal interface IObservedStore
{
    /// <summary>A key in any mode; what it says of positions is judged by <see cref="PositionRules"/>.</summary>
    Task<Observation> GetAsync(string key, KvReadMode read);

    /// <summary>The entries of a prefix, by key; null: it did not come to its end.</summary>
    Task<IReadOnlyDictionary<string, Observation>?> ScanAsync(string prefix, KvReadMode read);

    Task<Observation> PutAsync(string key, string value);

    /// <param name="expected">Null: the key must be absent.</param>
    Task<Observation> PutIfAsync(string key, string? expected, string value);

    /// <summary>Puts two keys of one shard, both or neither, on condition of what the first one is. The etag is the second put's, one change behind the first's.</summary>
    /// <param name="expected">Of the first key; null: it must be absent.</param>
    Task<Observation> PutBothIfAsync((string Key, string Value) first, string? expected, (string Key, string Value) second);

    Task<Observation> DeleteAsync(string key);
}
