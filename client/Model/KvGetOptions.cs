namespace KvCluster.Client;

/// <summary>What is special about a read of keys.</summary>
public sealed record KvGetOptions : KvReadOptions
{
    /// <summary>Also return how long each key lives, and which session owns it (<see cref="GetResult.Life"/>).</summary>
    public bool WithLife { get; init; }

    /// <summary>A read in a mode, of which nothing else is special; null means <see cref="KvClientOptions.Read"/>.</summary>
    public static implicit operator KvGetOptions(KvReadMode? read) => new() { Read = read };
}
