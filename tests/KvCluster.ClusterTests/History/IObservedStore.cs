using KvCluster.Client;

namespace KvCluster.ClusterTests.History;

/// <summary>The operations of a history. There are two implementations: the client library, and unary calls of a generated stub.</summary>
internal interface IObservedStore
{
    /// <summary>Reads a key in any mode. <see cref="PositionRules"/> checks its positions.</summary>
    Task<Observation> GetAsync(string key, KvReadMode read);

    /// <summary>The entries of a prefix by key, or null if the scan did not complete.</summary>
    Task<IReadOnlyDictionary<string, Observation>?> ScanAsync(string prefix, KvReadMode read);

    Task<Observation> PutAsync(string key, string value);

    /// <param name="expected">The expected value, or null if the key must be absent.</param>
    Task<Observation> PutIfAsync(string key, string? expected, string value);

    /// <summary>Puts both or neither of two keys of one shard, on condition of the first one's value. The etag is that of the second put, one change
    /// after the first.</summary>
    /// <param name="expected">The expected value of the first key, or null if it must be absent.</param>
    Task<Observation> PutBothIfAsync((string Key, string Value) first, string? expected, (string Key, string Value) second);

    Task<Observation> DeleteAsync(string key);
}
