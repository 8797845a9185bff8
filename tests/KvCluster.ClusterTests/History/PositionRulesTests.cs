namespace KvCluster.ClusterTests.History;

/// <summary>What the rules for weaker reads and for deletes accept and reject, on histories of a few operations.</summary>
public sealed class PositionRulesTests
{
    private const long Second = 1_000_000_000;

    [Fact]
    public void Judge_ValidHistory_FindsNothing() => Assert.Empty(PositionRules.Judge(
    [
        Put("a", 2), Put("b", 4), Delete(6, existed: true), Delete(7, existed: false), Put("c", 9, status: "unknown"),
        Get("session", "a", of: 2, position: 3, seen: 3),
        Get("stale", "b", of: 4, position: 5), Get("session", null, of: 0, position: 8, seen: 7), Get("stale", null, of: 0, position: 1),
        // The put of unknown outcome was apparently made.
        Get("session", "c", of: 10, position: 11, seen: 10), Delete(12, existed: true),
    ]));

    [Fact]
    public void Judge_InvalidHistory_FindsEachViolation()
    {
        Finds("had been answered", Put("a", 2), Get("session", null, of: 0, position: 1, seen: 2));
        Finds("lacks the change", Put("a", 2), Put("b", 4), Get("stale", "a", of: 2, position: 5));
        Finds("lacks 'a'", Put("a", 2), Get("stale", null, of: 0, position: 2));
        Finds("lacks the change", Put("a", 2), Delete(4, existed: true), Get("session", "a", of: 2, position: 4));
        Finds("has a value of", Put("a", 5), Get("stale", "a", of: 5, position: 4));
        Finds("too", Put("a", 2), Get("stale", "z", of: 2, position: 3));
        Finds("was not there that was", Put("a", 2), Delete(4, existed: false));
        Finds("met a key that was not there", Put("a", 2), Delete(4, existed: true), Delete(6, existed: true));
        Finds("acknowledged long before", Put("a", 2), Get("stale", null, of: 0, position: 1) with { Call = 60 * Second, AgeUs = 1_000_000 });
    }

    private static void Finds(string violation, params HistoryEntry[] history) =>
        Assert.Contains(violation, Assert.Single(PositionRules.Judge(history)), StringComparison.Ordinal);

    private static HistoryEntry Put(string value, ulong etag, string status = "ok") =>
        HistoryEntry.Of(1, "k", "put", value, new Observation(status, Etag: At(etag)) { Position = At(status == "ok" ? etag : 0) }, 0, 1);

    private static HistoryEntry Delete(ulong etag, bool existed) =>
        HistoryEntry.Of(1, "k", "delete", "", new Observation("ok") { Position = At(etag), Existed = existed }, 0, 1);

    private static HistoryEntry Get(string mode, string? value, ulong of, ulong position, ulong seen = 0) => HistoryEntry.Of(
        1, "k", "get", "",
        new Observation("ok", value is not null, value ?? "", At(of))
        {
            Position = At(position), Seen = At(seen), AgeUs = mode == "stale" ? 0 : -1
        },
        2, 3) with { Mode = mode };

    private static Etag At(ulong change) => change == 0 ? Etag.None : new Etag(1, change);
}
