namespace KvCluster.Client;

/// <summary>What is special about a call that reads.</summary>
public record KvReadOptions : KvCallOptions
{
    /// <summary>How up to date the answer must be, and which replicas may serve it; null means <see cref="KvClientOptions.Read"/>.</summary>
    public KvReadMode? Read { get; init; }

    /// <summary>A read in a mode, of which nothing else is special; null means <see cref="KvClientOptions.Read"/>.</summary>
    public static implicit operator KvReadOptions(KvReadMode? read) => new() { Read = read };
}
