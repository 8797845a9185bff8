using System.Text.Json;

namespace KvCluster.ClusterTests.History;

/// <summary>One operation of a history, in the form that `lincheck` reads: a line of JSON each, times in nanoseconds of the machine's monotonic clock.</summary>
internal sealed record HistoryEntry(
    int Client, string Key, string Op, string Value, string Expect, bool ExpectMissing, bool Found, long Call, long Return, string Status, string Etag)
{
    private static readonly JsonSerializerOptions Names = new() { PropertyNamingPolicy = JsonNamingPolicy.SnakeCaseLower };

    public string ToLine() => JsonSerializer.Serialize(this, Names);
}
