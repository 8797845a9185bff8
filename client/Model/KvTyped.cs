namespace KvCluster.Client;

/// <summary>The answer to a read of one key with a value of a type.</summary>
/// <typeparam name="T">The type of the value.</typeparam>
/// <param name="Found">Whether the key exists.</param>
/// <param name="Value">Its value; the default of the type if it does not exist.</param>
/// <param name="Etag">The etag of the change that set the value.</param>
/// <param name="Position">The state that the answer was read from.</param>
public readonly record struct GetResult<T>(bool Found, T? Value, Etag Etag, ShardPosition Position)
{
    /// <inheritdoc cref="GetResult.Age"/>
    public TimeSpan? Age { get; init; }

    /// <inheritdoc cref="GetResult.Life"/>
    public KvLife Life { get; init; }

    internal static GetResult<T> Of(in GetResult read, T? value) => new(read.Found, value, read.Etag, read.Position) { Age = read.Age, Life = read.Life };
}

/// <summary>A key with a value of a type.</summary>
/// <typeparam name="T">The type of the value.</typeparam>
/// <param name="Key">The key.</param>
/// <param name="Value">The value; the default of the type in scans of keys only.</param>
/// <param name="Etag">The etag of the change that set the value.</param>
public readonly record struct KvEntry<T>(KvKey Key, T? Value, Etag Etag)
{
    /// <inheritdoc cref="KvEntry.Life"/>
    public KvLife Life { get; init; }
}
