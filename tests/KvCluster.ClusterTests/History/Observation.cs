namespace KvCluster.ClusterTests.History;

/// <summary>What a caller learned from one operation.</summary>
/// <param name="Status">"ok" if the outcome is known, "fail" if it was certainly not applied, or "unknown".</param>
/// <param name="Found">get: the key existed; conditional put: it was applied.</param>
/// <param name="Value">get: the value.</param>
/// <param name="Etag">The etag of the value read or of the change made, or none.</param>
internal readonly record struct Observation(string Status, bool Found = false, string Value = "", Etag Etag = default)
{
    public static readonly Observation NotDone = new("fail");

    public static readonly Observation Unknown = new("unknown");

    /// <summary>A conditional put whose condition did not hold, or a key that a scan did not find.</summary>
    public static readonly Observation Refused = new("ok");

    /// <summary>The state in which the answer was evaluated, or none if it does not say.</summary>
    public Etag Position { get; init; }

    /// <summary>The shard of the position.</summary>
    public uint Shard { get; init; }

    /// <summary>The greatest position of the shard that the caller had seen before the request.</summary>
    public Etag Seen { get; init; }

    /// <summary>The age of a stale answer, or negative if it does not say.</summary>
    public long AgeUs { get; init; } = -1;

    /// <summary>delete: the key existed.</summary>
    public bool Existed { get; init; }
}
