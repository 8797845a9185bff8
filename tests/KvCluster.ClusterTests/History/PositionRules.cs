namespace KvCluster.ClusterTests.History;

/// <summary>
/// Checks what a linearizability check key by key does not cover: reads of weaker modes, and the answers to deletes. Each answer names the state in
/// which it was evaluated, and the acknowledged changes of a key are known with their etags. So every answer can be compared with what its state must
/// have contained. Changes of unknown outcome may be in it or not. A pure function.
/// </summary>
internal static class PositionRules
{
    /// <summary>
    /// What a stale answer's age does not include, by kv.proto: the delay of its leader's message, and the time for which a leader that was cut off
    /// still sends. Generous, because some tests stop processes.
    /// </summary>
    private const long StaleSlackNs = 15_000_000_000;

    /// <summary>The violations of the rules, one line each.</summary>
    public static IReadOnlyList<string> Judge(IReadOnlyCollection<HistoryEntry> history)
    {
        var violations = new List<string>();
        foreach (var key in history.GroupBy(static entry => entry.Key))
        {
            var known = new KnownChanges([.. key], violations);
            foreach (var entry in key.Where(static entry => entry.Status == "ok" && entry.Position.Length > 0))
                Check(entry, known, violations);
        }
        foreach (var shard in history.Where(static entry => entry.Position.Length > 0).GroupBy(static entry => entry.Shard))
            CheckAges([.. shard], violations);
        return violations;
    }

    private static void Check(HistoryEntry entry, KnownChanges known, List<string> violations)
    {
        if (entry.Mode == "session" && Less(entry.Position, entry.Seen))
            violations.Add($"a session read is of {entry.Position}, but its caller had been answered {entry.Seen}: {entry.ToLine()}");
        var wrong = entry.Op switch
        {
            "get" => known.WrongAt(entry),
            "delete" => known.WrongBefore(entry),
            _ => null,
        };
        if (wrong is not null)
            violations.Add($"{wrong}: {entry.ToLine()}");
    }

    // Within one shard: what was acknowledged longer ago than a stale answer's age is in its state.
    private static void CheckAges(HistoryEntry[] entries, List<string> violations)
    {
        var changes = entries.Where(static entry => entry.IsChange).OrderBy(static entry => entry.Return).ToArray();
        var returned = changes.Select(static entry => entry.Return).ToArray();
        var greatest = new string[changes.Length];
        for (var index = 0; index < changes.Length; index++)
            greatest[index] = index > 0 && Less(changes[index].Position, greatest[index - 1]) ? greatest[index - 1] : changes[index].Position;
        foreach (var entry in entries.Where(static entry => entry is { Mode: "stale", Status: "ok", AgeUs: >= 0 }))
        {
            var place = Array.BinarySearch(returned, entry.Call - (entry.AgeUs * 1_000) - StaleSlackNs);
            place = place >= 0 ? place : ~place - 1;
            if (place >= 0 && Less(entry.Position, greatest[place]))
                violations.Add(
                    $"a stale read that says it is {entry.AgeUs} us old lacks {greatest[place]}, which was acknowledged long before: {entry.ToLine()}");
        }
    }

    private static bool Less(string left, string right) => string.CompareOrdinal(left, right) < 0;

    /// <summary>What is known of one key: its changes by their etags, and those that may have been made.</summary>
    private sealed class KnownChanges
    {
        // Null means deleted.
        private readonly SortedList<string, string?> _changes = new(StringComparer.Ordinal);
        private readonly HashSet<string> _maybePut;
        private readonly bool _maybeDeleted;

        public KnownChanges(IReadOnlyCollection<HistoryEntry> entries, List<string> violations)
        {
            _maybePut = [.. entries.Where(static entry => entry.Status == "unknown" && entry.Op is "put" or "cas").Select(static entry => entry.Value)];
            _maybeDeleted = entries.Any(static entry => entry is { Status: "unknown", Op: "delete" });
            foreach (var entry in entries.Where(static entry => entry.Status == "ok"))
            {
                var (etag, value) = entry switch
                {
                    { Op: "delete", Existed: true } => (entry.Position, null),
                    { Op: "put" } or { Op: "cas", Found: true } or { Op: "get", Found: true } => (entry.Etag, entry.Value),
                    _ => ("", null),
                };
                if (etag.Length > 0 && !_changes.TryAdd(etag, value) && _changes[etag] != value)
                    violations.Add($"etag {etag} of {entry.Key} is of '{_changes[etag] ?? "a delete"}', too: {entry.ToLine()}");
            }
        }

        /// <summary>Why a read contradicts its position, or null.</summary>
        public string? WrongAt(HistoryEntry read)
        {
            var last = LastUpTo(read.Position, inclusive: true);
            if (!read.Found)
                return last?.Value is { } lost && !_maybeDeleted ? $"a read of {read.Position} lacks '{lost}' of {last.Value.Etag}" : null;
            if (Less(read.Position, read.Etag))
                return $"a read of {read.Position} has a value of {read.Etag}";
            return last is var (etag, _) && Less(read.Etag, etag) ? $"a read of {read.Position} lacks the change {etag}" : null;
        }

        /// <summary>Why a delete contradicts the state before it, or null.</summary>
        public string? WrongBefore(HistoryEntry delete)
        {
            var present = LastUpTo(delete.Position, inclusive: false)?.Value is not null;
            if (delete.Existed)
                return present || _maybePut.Count > 0 ? null : "a delete says that it met a key that was not there";
            return present && !_maybeDeleted ? "a delete says that a key was not there that was" : null;
        }

        private (string Etag, string? Value)? LastUpTo(string position, bool inclusive)
        {
            (string Etag, string? Value)? last = null;
            foreach (var (etag, value) in _changes)
            {
                if (string.CompareOrdinal(etag, position) is var order && (order > 0 || (order == 0 && !inclusive)))
                    break;
                last = (etag, value);
            }
            return last;
        }
    }
}
