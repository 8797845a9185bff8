using KvCluster.V1;

namespace KvCluster.Client;

/// <summary>A range that is read page by page, and the limits of a page.</summary>
public sealed record KvList
{
    /// <summary>Only keys with this prefix; empty means all.</summary>
    public KvKey Prefix { get; init; }

    /// <summary>First key, inclusive; empty means the first of all.</summary>
    public KvKey Start { get; init; }

    /// <summary>End, exclusive; empty means after the last.</summary>
    public KvKey End { get; init; }

    /// <summary>Descending from the last key.</summary>
    public bool Reverse { get; init; }

    /// <summary>The maximum number of entries of a page, up to 10,000.</summary>
    public int Limit { get; init; } = 1_000;

    /// <summary>The maximum number of bytes of keys and values of a page, up to 4 MiB. A page has at least one entry.</summary>
    public int BytesMax { get; init; } = 1 << 20;

    /// <summary>Omit the values.</summary>
    public bool KeysOnly { get; init; }

    /// <summary>Also return how long each key lives, and which session owns it (<see cref="KvEntry.Life"/>).</summary>
    public bool WithLife { get; init; }

    /// <summary>How up to date the entries must be; null means <see cref="KvClientOptions.Read"/>.</summary>
    public KvReadMode? Read { get; init; }

    /// <summary>The maximum time of a page with all its retries; null means <see cref="KvClientOptions.Timeout"/>.</summary>
    /// <exception cref="ArgumentOutOfRangeException">It is not greater than zero, or longer than a day.</exception>
    public TimeSpan? Timeout
    {
        get;
        init => field = KvCallOptions.Checked(value);
    }

    internal KvCallOptions? Call => Timeout is null ? null : new KvCallOptions { Timeout = Timeout };

    /// <summary>
    /// If the snapshot of the page before is not kept any more, because its reader paused for long or its node stopped, continue after its last entry in a
    /// newer one;
    /// <see cref="KvPage.Position"/> tells. By default that page is refused with the reason SNAPSHOT_TOO_OLD, so that all pages of a shard are from one
    /// snapshot.
    /// </summary>
    public bool NewerSnapshots { get; init; }

    internal ListRequest ToMessage(ReadOptions? read, ReadOnlyMemory<byte> pageToken) => new()
    {
        Prefix = Prefix.ToByteString(),
        Start = Start.ToByteString(),
        End = End.ToByteString(),
        Reverse = Reverse,
        Limit = (uint)Limit,
        BytesMax = (uint)BytesMax,
        KeysOnly = KeysOnly,
        WithLife = WithLife,
        Read = read,
        PageToken = pageToken.ToByteString(),
        NewerSnapshot = NewerSnapshots,
    };
}

/// <summary>One page of a <see cref="KvList"/>.</summary>
/// <param name="Entries">In the order that was asked for. A page may be empty although others follow.</param>
/// <param name="NextToken">For the next page; empty if this is the last one.</param>
/// <param name="Position">The state that the page was read from.</param>
public sealed record KvPage(IReadOnlyList<KvEntry> Entries, ReadOnlyMemory<byte> NextToken, ShardPosition Position);
