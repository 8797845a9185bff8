using Google.Protobuf;
using Google.Protobuf.Collections;

namespace KvCluster.Replication.Log;

/// <summary>How bodies from a peer relate to this replica's journal.</summary>
internal enum TailFit
{
    /// <summary>The journal does not have the record that precedes the bodies.</summary>
    Missing,

    /// <summary>The bodies are damaged or do not form a chain. Nothing of them may be used.</summary>
    Damaged,

    /// <summary>The journal has different records after the last common one.</summary>
    Conflict,

    /// <summary>The bodies fit: the common part is skipped, the rest may be appended.</summary>
    Fits,
}

/// <summary>Compares bodies from a peer with this replica's journal. Pure; used by a follower's append and a candidate's fetch. After a conflict,
/// <c>Follower.BeginTruncation</c> or <c>TailFetch</c> truncates the journal (<c>TailTruncation</c>).</summary>
/// <param name="Fit">How the bodies fit.</param>
/// <param name="Common">The last common record, before anything is appended.</param>
/// <param name="New">The bodies that the journal lacks, in order.</param>
/// <param name="End">The last record after appending.</param>
internal readonly record struct TailMatch(TailFit Fit, LogPosition Common, IReadOnlyList<IVerifiedBody> New, LogPosition End)
{
    /// <summary>Compares the bodies with the journal.</summary>
    /// <param name="epochMax">No record of a higher epoch may come from this peer.</param>
    public static TailMatch Of(IJournalView journal, LogPosition previous, RepeatedField<ByteString> bodies, ulong epochMax)
    {
        if (!Has(journal, previous))
            return new TailMatch(TailFit.Missing, default, [], default);
        var common = previous;
        var end = previous;
        var added = new List<IVerifiedBody>(bodies.Count);
        foreach (var body in bodies)
        {
            if (!journal.TryVerify(body, out var verified))
                return new TailMatch(TailFit.Damaged, default, [], default);
            var record = verified.Record;
            if (record.PreviousName != end || record.Etag <= end.Etag || record.Etag.Epoch > epochMax)
                return new TailMatch(TailFit.Damaged, default, [], default);
            if (common == end && Has(journal, record.Name))
                common = record.Name;
            else
                added.Add(verified);
            end = record.Name;
        }

        Invariant.Check(common.Etag <= end.Etag && added.Count <= bodies.Count, $"{added.Count} of {bodies.Count} bodies up to {end} are new, after {common}.");
        var conflict = common != end && common != journal.Last.Name;
        return new TailMatch(conflict ? TailFit.Conflict : TailFit.Fits, common, added, end);
    }

    /// <summary>Whether the journal has exactly this record, hence all before it.</summary>
    public static bool Has(IJournalView journal, LogPosition name) => journal.TryFind(name.Etag, out var own) && own.Checksum == name.Checksum;

    /// <summary>
    /// Where to look next for the last common record, when the peer lacks <paramref name="asked"/> but has <paramref name="hint"/> at or before it:
    /// the hint itself if it is common, else this journal's record at or before it. False if this journal no longer reaches back that far.
    /// </summary>
    public static bool TryStepBack(IJournalView journal, LogPosition asked, LogPosition hint, out LogPosition next, out bool common)
    {
        common = Has(journal, hint);
        next = hint;
        if (common)
            return true;
        var found = journal.TryFindAtOrBefore(hint.Etag < asked.Etag ? hint.Etag : asked.Etag.Predecessor, out var own);
        next = own.Name;
        Invariant.Check(!found || next.Etag < asked.Etag || asked.Etag == Etag.None, $"The search for the last common record goes from {asked} to {next}.");
        return found;
    }
}
