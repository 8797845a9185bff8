using System.Text.Json;

namespace KvCluster.ClusterTests.History;

/// <summary>One operation of a history, in the form that `lincheck` reads, and with what <see cref="PositionRules"/> asks for: a line of JSON each, times in nanoseconds of the machine's monotonic clock.</summary>
internal sealed record HistoryEntry(
    int Client, string Key, string Op, string Value, string Expect, bool ExpectMissing, bool Found, long Call, long Return, string Status, string Etag)
{
    /// <summary>get: "session" or "stale"; empty: it must be linearizable.</summary>
    public string Mode { get; init; } = "";

    /// <summary>As <see cref="Observation"/> has it, as is each of these that follow; empty: none.</summary>
    public string Position { get; init; } = "";

    public uint Shard { get; init; }

    public string Seen { get; init; } = "";

    public long AgeUs { get; init; } = -1;

    public bool Existed { get; init; }

    private static readonly JsonSerializerOptions Names = new() { PropertyNamingPolicy = JsonNamingPolicy.SnakeCaseLower };

    /// <summary>Whether it is known to have changed the key.</summary>
    public bool IsChange => Status == "ok" && Op != "get" && (Op != "cas" || Found);

    /// <param name="op">As lincheck calls it.</param>
    /// <param name="written">What a put put; "" for others.</param>
    public static HistoryEntry Of(int client, string key, string op, string written, in Observation observed, long call, long returned) => new(
        client, key, op, op == "get" ? observed.Value : written, "", ExpectMissing: false, observed.Found, call, returned, observed.Status, Text(observed.Etag))
    {
        Position = Text(observed.Position),
        Shard = observed.Shard,
        Seen = Text(observed.Seen),
        AgeUs = observed.AgeUs,
        Existed = observed.Existed,
    };

    /// <param name="expected">What the caller took the key to be; null: absent.</param>
    public static HistoryEntry OfConditional(int client, string key, string? expected, string written, in Observation observed, long call, long returned) =>
        Of(client, key, "cas", written, observed, call, returned) with { Expect = expected ?? "", ExpectMissing = expected is null };

    public static HistoryEntry FromLine(string line) => JsonSerializer.Deserialize<HistoryEntry>(line, Names)!;

    private static string Text(KvCluster.Etag etag) => etag == KvCluster.Etag.None ? "" : etag.ToString();

    public string ToLine() => JsonSerializer.Serialize(this, Names);
}
