namespace KvCluster.Benchmarks.Clients;

/// <summary>
/// A system that holds the records of YCSB, and one way to call it. Any thread. An exception means that the answers would be of something else, or that none
/// came.
/// </summary>
internal interface IYcsbStore : IAsyncDisposable
{
    /// <summary>Its name in the table.</summary>
    string Name { get; }

    /// <summary>How many records it is loaded with.</summary>
    int Records { get; }

    /// <summary>Processes whose CPU time counts.</summary>
    IReadOnlyList<int> Servers { get; }

    /// <summary>Writes all records, in the order of their keys. They are durable when it ends.</summary>
    /// <param name="values">The value of a record is that of its number; there is a power of two of them.</param>
    /// <param name="cancellation">Ends the load with an exception.</param>
    Task LoadAsync(byte[][] values, CancellationToken cancellation);

    /// <summary>Whether the key is there.</summary>
    ValueTask<bool> GetAsync(int caller, ReadOnlyMemory<byte> key);

    /// <summary>A put of a key that is there.</summary>
    ValueTask PutAsync(int caller, ReadOnlyMemory<byte> key, byte[] value);

    /// <summary>A put of a new key.</summary>
    ValueTask InsertAsync(int caller, ReadOnlyMemory<byte> key, byte[] value);

    /// <summary>Keys and values in key order.</summary>
    /// <param name="caller">The caller.</param>
    /// <param name="start">The first key.</param>
    /// <param name="limit">The most records.</param>
    /// <returns>How many there were.</returns>
    ValueTask<int> ScanAsync(int caller, ReadOnlyMemory<byte> start, int limit);
}
