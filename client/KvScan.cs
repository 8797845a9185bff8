using KvCluster.V1;

namespace KvCluster.Client;

/// <summary>Which entries a scan gives, and how.</summary>
public sealed record KvScan
{
    /// <summary>Only keys with this prefix; empty: all.</summary>
    public ReadOnlyMemory<byte> Prefix { get; init; }

    /// <summary>First key, inclusive; empty: from the first.</summary>
    public ReadOnlyMemory<byte> Start { get; init; }

    /// <summary>End, exclusive; empty: to the last.</summary>
    public ReadOnlyMemory<byte> End { get; init; }

    /// <summary>From the last key down.</summary>
    public bool Reverse { get; init; }

    /// <summary>At most so many entries; 0: all.</summary>
    public ulong Limit { get; init; }

    /// <summary>Leave out the values.</summary>
    public bool KeysOnly { get; init; }

    /// <summary>How new the entries must be, and which replicas may give them; null: as <see cref="KvClientOptions.Read"/>.</summary>
    public KvReadMode? Read { get; init; }

    /// <summary>
    /// All entries of a shard are of one snapshot, or the scan fails: with the reason SNAPSHOT_TOO_OLD where it is read so slowly that its snapshot is held too long. Otherwise it goes
    /// on by itself after the last entry received, in a newer snapshot.
    /// </summary>
    public bool OneSnapshot { get; init; }

    internal ScanRequest ToMessage(ReadOptions? read) => new()
    {
        Prefix = Prefix.ToByteString(),
        Start = Start.ToByteString(),
        End = End.ToByteString(),
        Reverse = Reverse,
        Limit = Limit,
        KeysOnly = KeysOnly,
        Read = read,
        OneSnapshot = OneSnapshot,
    };
}
