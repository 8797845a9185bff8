using System.Text.Json;

namespace KvCluster.ClusterTests.History;

/// <summary>One operation of a history, in the form that `lincheck` reads: a line of JSON each, times in nanoseconds of the machine's monotonic clock.</summary>
internal sealed record HistoryEntry(
    int Client, string Key, string Op, string Value, string Expect, bool ExpectMissing, bool Found, long Call, long Return, string Status, string Etag)
{
    private static readonly JsonSerializerOptions Names = new() { PropertyNamingPolicy = JsonNamingPolicy.SnakeCaseLower };

    /// <summary>Whether it is known to have changed the key.</summary>
    public bool IsChange => Status == "ok" && Op != "get" && (Op != "cas" || Found);

    /// <param name="op">As lincheck calls it.</param>
    /// <param name="written">What a put put; "" for others.</param>
    public static HistoryEntry Of(int client, string key, string op, string written, in Observation observed, long call, long returned) => new(
        client, key, op, op == "get" ? observed.Value : written, "", ExpectMissing: false, observed.Found, call, returned, observed.Status, observed.Etag == KvCluster.Etag.None ? "" : observed.Etag.ToString());

    /// <param name="expected">What the caller took the key to be; null: absent.</param>
    public static HistoryEntry OfConditional(int client, string key, string? expected, string written, in Observation observed, long call, long returned) =>
        Of(client, key, "cas", written, observed, call, returned) with { Expect = expected ?? "", ExpectMissing = expected is null };

    public string ToLine() => JsonSerializer.Serialize(this, Names);
}
