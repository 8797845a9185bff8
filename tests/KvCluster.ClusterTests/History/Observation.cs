namespace KvCluster.ClusterTests.History;

/// <summary>What a caller learnt from one operation.</summary>
/// <param name="Status">"ok": its outcome is known; "fail": it was certainly not done; "unknown".</param>
/// <param name="Found">get: the key existed; conditional put: it was done.</param>
/// <param name="Value">get: the value.</param>
/// <param name="Etag">Of the value read or of the change made; none: nothing was read or changed.</param>
internal readonly record struct Observation(string Status, bool Found = false, string Value = "", Etag Etag = default)
{
    public static readonly Observation NotDone = new("fail");

    public static readonly Observation Unknown = new("unknown");

    /// <summary>A conditional put whose condition did not hold; a key that a scan did not find.</summary>
    public static readonly Observation Refused = new("ok");

    /// <summary>The state that the answer was evaluated on; none: it does not say.</summary>
    public Etag Position { get; init; }

    /// <summary>Of which shard.</summary>
    public uint Shard { get; init; }

    /// <summary>The greatest position of the shard that the caller had been answered before it asked.</summary>
    public Etag Seen { get; init; }

    /// <summary>How old a stale answer says it may be; negative: it does not say.</summary>
    public long AgeUs { get; init; } = -1;

    /// <summary>delete: the key was there.</summary>
    public bool Existed { get; init; }
}
