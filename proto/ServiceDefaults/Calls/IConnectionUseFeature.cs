namespace KvCluster.ServiceDefaults.Calls;

/// <summary>
/// A feature of a connection that tracks how it is used. A server with too many connections closes unused ones first, and one with too many calls refuses
/// those of the busiest connection.
/// </summary>
internal interface IConnectionUseFeature
{
    /// <summary>Its open calls.</summary>
    ConnectionCalls Calls { get; }

    /// <summary>Records that a call came on it.</summary>
    void MarkUsed();

    /// <summary>Asks its caller to start no more calls on it, because many were refused in a row. Open calls are unaffected.</summary>
    void TakeNoMore();

    /// <summary>Ends it with all its calls, because it continued to send calls that are refused.</summary>
    void End();
}
