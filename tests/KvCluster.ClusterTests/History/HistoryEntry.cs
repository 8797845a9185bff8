using System.Text.Json;

namespace KvCluster.ClusterTests.History;

/// <summary>
/// One operation of a history, as a line of JSON in the format that `lincheck` reads, with the fields for <see cref="PositionRules"/>. Times are in
/// nanoseconds of the machine's monotonic clock.
/// </summary>
internal sealed record HistoryEntry(
    int Client, string Key, string Op, string Value, string Expect, bool ExpectMissing, bool Found, long Call, long Return, string Status, string Etag)
{
    /// <summary>For get: "session" or "stale". Empty means that it must be linearizable.</summary>
    public string Mode { get; init; } = "";

    /// <summary>As in <see cref="Observation"/>, like the fields that follow. Empty means none.</summary>
    public string Position { get; init; } = "";

    public uint Shard { get; init; }

    public string Seen { get; init; } = "";

    public long AgeUs { get; init; } = -1;

    public bool Existed { get; init; }

    private static readonly JsonSerializerOptions Names = new() { PropertyNamingPolicy = JsonNamingPolicy.SnakeCaseLower };

    /// <summary>Whether it certainly changed the key.</summary>
    public bool IsChange => Status == "ok" && Op != "get" && (Op != "cas" || Found);

    /// <param name="op">The operation, by lincheck's name.</param>
    /// <param name="written">The value of a put, or "".</param>
    public static HistoryEntry Of(int client, string key, string op, string written, in Observation observed, long call, long returned) => new(
        client, key, op, op == "get" ? observed.Value : written, "", ExpectMissing: false, observed.Found, call, returned, observed.Status, Text(observed.Etag))
    {
        Position = Text(observed.Position),
        Shard = observed.Shard,
        Seen = Text(observed.Seen),
        AgeUs = observed.AgeUs,
        Existed = observed.Existed,
    };

    /// <param name="expected">The value that the caller expected, or null if absent.</param>
    public static HistoryEntry OfConditional(int client, string key, string? expected, string written, in Observation observed, long call, long returned) =>
        Of(client, key, "cas", written, observed, call, returned) with { Expect = expected ?? "", ExpectMissing = expected is null };

    public static HistoryEntry FromLine(string line) => JsonSerializer.Deserialize<HistoryEntry>(line, Names)!;

    private static string Text(KvCluster.Etag etag) => etag == KvCluster.Etag.None ? "" : etag.ToString();

    public string ToLine() => JsonSerializer.Serialize(this, Names);
}
