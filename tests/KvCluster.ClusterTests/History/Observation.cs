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
}
