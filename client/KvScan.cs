using KvCluster.V1;

namespace KvCluster.Client;

/// <summary>Which entries a scan returns, and how.</summary>
public sealed record KvScan
{
    /// <summary>Only keys with this prefix; empty means all.</summary>
    public KvKey Prefix { get; init; }

    /// <summary>First key, inclusive; empty means the first of all.</summary>
    public KvKey Start { get; init; }

    /// <summary>End, exclusive; empty means after the last.</summary>
    public KvKey End { get; init; }

    /// <summary>Descending from the last key.</summary>
    public bool Reverse { get; init; }

    /// <summary>The maximum number of entries; 0 means all.</summary>
    public ulong Limit { get; init; }

    /// <summary>The maximum number of bytes of keys and values; 0 means no maximum.</summary>
    public ulong BytesMax { get; init; }

    /// <summary>Omit the values.</summary>
    public bool KeysOnly { get; init; }

    /// <summary>Also return how long each key lives, and which session owns it (<see cref="KvEntry.Life"/>).</summary>
    public bool WithLife { get; init; }

    /// <summary>How up to date the entries must be, and which replicas may serve them; null means <see cref="KvClientOptions.Read"/>.</summary>
    public KvReadMode? Read { get; init; }

    /// <summary>The scan fails if nothing comes for so long; null means <see cref="KvClientOptions.Timeout"/>.</summary>
    /// <exception cref="ArgumentOutOfRangeException">It is not greater than zero, or longer than a day.</exception>
    public TimeSpan? Timeout
    {
        get;
        init => field = KvCallOptions.Checked(value);
    }

    /// <summary>
    /// All entries of a shard are from one snapshot, or the scan fails, with the reason SNAPSHOT_TOO_OLD if it is read so slowly that the snapshot is held
    /// too long. By default the scan continues after the last entry received, in a newer snapshot.
    /// </summary>
    public bool OneSnapshot { get; init; }

    internal ScanRequest ToMessage(ReadOptions? read) => new()
    {
        Prefix = Prefix.ToByteString(),
        Start = Start.ToByteString(),
        End = End.ToByteString(),
        Reverse = Reverse,
        Limit = Limit,
        BytesMax = BytesMax,
        KeysOnly = KeysOnly,
        WithLife = WithLife,
        Read = read,
        OneSnapshot = OneSnapshot,
    };
}
