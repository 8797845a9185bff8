namespace KvCluster.ClusterTests.History;

/// <summary>The operations of a history. Two ways to call them: the client library, and unary calls of a generated stub.</summary>
internal interface IObservedStore
{
    Task<Observation> GetAsync(string key);

    Task<Observation> PutAsync(string key, string value);

    /// <param name="expected">Null: the key must be absent.</param>
    Task<Observation> PutIfAsync(string key, string? expected, string value);

    Task<Observation> DeleteAsync(string key);
}
