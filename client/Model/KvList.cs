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
    public int Limit { get; init; } = KvLimits.ListEntriesDefault;

    /// <summary>The maximum number of bytes of keys and values of a page, up to 4 MiB. A page has at least one entry.</summary>
    public int BytesMax { get; init; } = KvLimits.ListBytesDefault;

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
    /// If the snapshot of the page before is not kept any more (<see cref="KvPage.SnapshotKeptFor"/>), because its reader paused for long or its node stopped,
    /// continue after its last entry in another one; <see cref="KvPage.Positions"/> tells. By default that page is refused with the reason SNAPSHOT_TOO_OLD,
    /// so that all pages of a shard are from one snapshot.
    /// </summary>
    /// <remarks>
    /// The other snapshot is as new as <see cref="Read"/> asks for, as if the page were the first: in all modes but <see cref="KvReadMode.Session"/> and
    /// <see cref="KvReadMode.Stale"/> it has everything that was acknowledged before this call. With Session it is not older than what this client has seen,
    /// so in another process <see cref="KvClient.Observe"/> comes first; with Stale it may be older than that of the page before. Every key that exists all
    /// the time is returned once, and none twice. Whether a key is returned that was put or deleted between two pages depends on where it is.
    /// </remarks>
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
/// <param name="Entries">In the order that was asked for. Only the last page may be empty.</param>
/// <param name="NextToken">
/// For the next page: up to 2,751 letters, digits, '.', '-' and '_', which can stand in a URL as they are. Null if this is the last page. Another process, too,
/// can go on with it, and so can a later version of this library. For <see cref="SnapshotKeptFor"/> it goes on in the same snapshot; with
/// <see cref="KvList.NewerSnapshots"/> it is good for as long as the cluster is. It is not encrypted: a key of the range can be read from it.
/// </param>
/// <param name="Position">The state that the page was read from; if it has entries of several shards, the state of the last one.</param>
public sealed record KvPage(IReadOnlyList<KvEntry> Entries, string? NextToken, ShardPosition Position)
{
    /// <summary>The state of each shard that was read for the page, in the order in which they were.</summary>
    public IReadOnlyList<ShardPosition> Positions { get; init; } = [Position];

    /// <summary>
    /// For how long, counted from the answer, the next page is from the same snapshot, unless the node needs the memory or stops. Null if it begins in another
    /// shard, with a snapshot of its own, if there is none, and from nodes of a version that does not tell.
    /// </summary>
    public TimeSpan? SnapshotKeptFor { get; init; }
}
