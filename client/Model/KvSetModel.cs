namespace KvCluster.Client;

/// <summary>Which members of a set are returned, and how.</summary>
public sealed record KvSetScan
{
    /// <summary>Only members with this prefix; empty means all.</summary>
    public KvKey Prefix { get; init; }

    /// <summary>First member, inclusive; empty means the first of all.</summary>
    public KvKey Start { get; init; }

    /// <summary>Descending from the last member.</summary>
    public bool Reverse { get; init; }

    /// <summary>The maximum number of members; 0 means all.</summary>
    public ulong Limit { get; init; }

    /// <summary>How up to date the members must be; null means <see cref="KvClientOptions.Read"/>.</summary>
    public KvReadMode? Read { get; init; }

    /// <summary>The maximum time of a page with all its retries; null means <see cref="KvClientOptions.Timeout"/>.</summary>
    /// <exception cref="ArgumentOutOfRangeException">It is not greater than zero, or longer than a day.</exception>
    public TimeSpan? Timeout
    {
        get;
        init => field = KvCallOptions.Checked(value);
    }

    internal KvCallOptions? Call => Timeout is null ? null : new KvCallOptions { Timeout = Timeout };
}

/// <summary>Sets of one shard whose common members are asked for.</summary>
public sealed record KvIntersection
{
    /// <summary>The keys of 1 to 64 sets.</summary>
    public IReadOnlyList<KvKey> Keys { get; init; } = [];

    /// <summary>First member returned, inclusive.</summary>
    public KvKey Start { get; init; }

    /// <summary>The maximum number of members returned, up to 10,000; 0 returns none.</summary>
    public int Limit { get; init; } = 1_000;

    /// <summary>For each set below such a prefix its members in the intersection are counted. At most 16.</summary>
    public IReadOnlyList<KvKey> FacetPrefixes { get; init; } = [];

    /// <summary>The maximum number of facets for each prefix, the largest first.</summary>
    public int FacetsMax { get; init; } = 10;

    /// <summary>How up to date the answer must be; null means <see cref="KvClientOptions.Read"/>.</summary>
    public KvReadMode? Read { get; init; }

    /// <summary>The maximum time of the call with all its retries; null means <see cref="KvClientOptions.Timeout"/>.</summary>
    /// <exception cref="ArgumentOutOfRangeException">It is not greater than zero, or longer than a day.</exception>
    public TimeSpan? Timeout
    {
        get;
        init => field = KvCallOptions.Checked(value);
    }

    internal KvCallOptions? Call => Timeout is null ? null : new KvCallOptions { Timeout = Timeout };
}

/// <summary>The answer to a change of a set.</summary>
/// <param name="Changed">How many members were added or removed.</param>
/// <param name="Position">The position of the last change; if nothing changed, that of the state.</param>
public readonly record struct SetChangeResult(ulong Changed, ShardPosition Position);

/// <summary>The answer to an intersection.</summary>
/// <param name="Members">A page of it, in order.</param>
/// <param name="More">More members follow.</param>
/// <param name="Count">The number of all its members.</param>
/// <param name="Facets">For each facet prefix, in their order.</param>
/// <param name="Position">The state that was read.</param>
public sealed record IntersectResult(
    IReadOnlyList<KvKey> Members, bool More, ulong Count, IReadOnlyList<FacetsResult> Facets, ShardPosition Position);

/// <summary>The facets below one prefix.</summary>
/// <param name="Sets">The largest first.</param>
/// <param name="SetsFound">The number of sets below the prefix that have a member in the intersection.</param>
public sealed record FacetsResult(IReadOnlyList<FacetResult> Sets, ulong SetsFound);

/// <summary>A facet.</summary>
/// <param name="Key">The key of the set.</param>
/// <param name="Count">How many members of the intersection it has.</param>
public readonly record struct FacetResult(KvKey Key, ulong Count);
