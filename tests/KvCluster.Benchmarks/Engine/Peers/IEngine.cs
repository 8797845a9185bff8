namespace KvCluster.Benchmarks.Engine.Peers;

/// <summary>
/// A storage engine with one open store: ours or a peer. All of them are called through this interface, so that each workload is written once and costs
/// every engine the same.
/// </summary>
internal interface IEngine : IDisposable
{
    /// <summary>Whether a commit blocks its thread, so that each caller needs a thread of its own.</summary>
    bool Blocks { get; }

    /// <summary>A writer of durable transactions for one caller.</summary>
    IEngineWriter OpenWriter();

    /// <summary>The fastest way to fill an empty store in the order of the keys.</summary>
    IEngineLoader OpenLoader();

    /// <summary>A reader for one thread.</summary>
    IEngineReader OpenReader();

    /// <summary>Completes when everything written is in the files in which it stays, and no background work is left.</summary>
    Task SettleAsync();
}

/// <summary>Writes one transaction after the other for one caller, who stays on its thread if the engine <see cref="IEngine.Blocks"/>.</summary>
internal interface IEngineWriter : IDisposable
{
    /// <summary>Adds a put to the transaction; the first one begins it.</summary>
    void Put(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value);

    /// <summary>Completes when the transaction is durable.</summary>
    ValueTask CommitAsync();
}

/// <summary>Loads sorted keys.</summary>
internal interface IEngineLoader : IDisposable
{
    /// <summary>Bytes of keys and values after which to call <see cref="CommitAsync"/>.</summary>
    int BatchBytes { get; }

    /// <summary>Adds a key that is greater than all before it.</summary>
    void Put(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value);

    /// <summary>Commits what was put; it need not be durable yet.</summary>
    ValueTask CommitAsync();

    /// <summary>Completes when everything is durable.</summary>
    Task FinishAsync();
}

/// <summary>Reads on one thread.</summary>
internal interface IEngineReader : IDisposable
{
    /// <summary>Opens the snapshot for <see cref="Get"/> and <see cref="Scan"/>.</summary>
    void Begin();

    /// <summary>Ends the snapshot.</summary>
    void End();

    /// <summary>Reads a key in the open snapshot: the sum of the value's first and last byte; -1 if the key is missing.</summary>
    int Get(ReadOnlySpan<byte> key);

    /// <summary>The same in a snapshot of its own.</summary>
    int GetAlone(ReadOnlySpan<byte> key);

    /// <summary>Reads keys and values forward from the first one, and returns how many.</summary>
    /// <param name="itemsMax">The most items to read.</param>
    /// <param name="bytes">The sum of the lengths and of one byte of each, so that no engine can leave out the access.</param>
    long Scan(long itemsMax, out long bytes);
}
