using KvCluster.Node.Shards.Context;
using KvCluster.Node.Shards.Reads;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;

namespace KvCluster.Node.Shards;

/// <summary>
/// Restarts the countdowns of sessions for their callers, beside the journal, so that a stalled disk ends no session whose callers are heard. Any thread. It is
/// a read: the countdowns are restarted first, and then this leadership is confirmed as for a read that arrived before. Only where a record says what was left
/// of a session, another record says first that this does not hold any more: a new leader that knew only the former would end a session whose caller was
/// answered.
/// </summary>
/// <param name="reads">Confirms the leadership.</param>
/// <param name="writes">Takes what must be recorded.</param>
/// <param name="journal">Provides the current store.</param>
internal sealed class SessionKeeping(ReplicaReads reads, ReplicaWrites writes, ReplicaJournalView journal)
{
    /// <summary>Leaderships that may be met in turn before the caller is sent away.</summary>
    private const int LeadershipsMax = 3;

    /// <summary>Restarts countdowns.</summary>
    /// <param name="sessions">The sessions.</param>
    /// <param name="leftMs">Gets how long each lives from now on, in milliseconds; 0 if it does not exist, or has no lifetime.</param>
    /// <param name="cancellationToken">Stops waiting. The countdowns may have been restarted.</param>
    public async ValueTask<SessionsKept> KeepAsync(ReadOnlyMemory<UInt128> sessions, ulong[] leftMs, CancellationToken cancellationToken)
    {
        for (var leadership = 0; leadership < LeadershipsMax && Restart(sessions.Span, leftMs, out var forget) is { } lifetimes; leadership++)
        {
            // The change is applied whether or not somebody waits for it.
            if (forget is not null && await writes.SubmitAsync(forget).AsTask().WaitAsync(cancellationToken)
                .ConfigureAwait(false) is { Outcome: not WriteOutcome.Applied } refused)
                return new SessionsKept(null, IsEnding: false, refused.Outcome is WriteOutcome.NotLeader or WriteOutcome.OutcomeUnknown ? null : refused);
            if (TryAnswer(lifetimes, sessions.Span, leftMs, isConfirmed: false, out var kept))
                return kept;
            if (await reads.ConfirmAsync(cancellationToken).ConfigureAwait(false) is null)
                break;
            if (TryAnswer(lifetimes, sessions.Span, leftMs, isConfirmed: true, out kept))
                return kept;
        }
        return new SessionsKept(null, IsEnding: false);
    }

    /// <summary>The first half: restarts the countdowns of the present leadership, and returns it; null if this replica does not lead.</summary>
    /// <param name="sessions">The sessions.</param>
    /// <param name="leftMs">As for <see cref="KeepAsync"/>.</param>
    /// <param name="forget">What must be applied before the second half; null: nothing.</param>
    public SessionLifetimes? Restart(ReadOnlySpan<UInt128> sessions, ulong[] leftMs, out WriteRequest? forget)
    {
        forget = null;
        var lifetimes = journal.Store.Writes.Lifetimes;
        for (var index = 0; lifetimes is not null && index < sessions.Length; index++)
        {
            leftMs[index] = lifetimes.KeepAlive(sessions[index], out var isRecorded);
            if (isRecorded)
                (forget ??= WriteRequest.Rent()).KeepSession(sessions[index]);
        }
        return lifetimes;
    }

    /// <summary>
    /// The second half: whether the answer may leave, because the lease covers it, or a round that began after the first half has confirmed the leadership.
    /// </summary>
    public bool TryAnswer(SessionLifetimes lifetimes, ReadOnlySpan<UInt128> sessions, ulong[] leftMs, bool isConfirmed, out SessionsKept kept)
    {
        kept = default;
        using var snapshot = reads.OpenSnapshot();
        // A round confirms whatever leadership there is by now. If it is a later one, that one counts for itself.
        if (snapshot.Etag.Epoch != lifetimes.Epoch || !(isConfirmed ? journal.Store.Writes.Lifetimes == lifetimes : reads.IsCovered(snapshot)))
            return false;
        var isEnding = false;
        for (var index = 0; index < sessions.Length && !isEnding; index++)
            isEnding = leftMs[index] == 0 && SessionTable.HasLifetime(snapshot, sessions[index]);
        kept = new SessionsKept(snapshot.Etag, isEnding);
        return true;
    }
}

/// <summary>The outcome of <see cref="SessionKeeping.KeepAsync"/>.</summary>
/// <param name="Etag">The newest etag of the state in which the sessions exist or not; null if this replica does not lead.</param>
/// <param name="IsEnding">The end of one of the sessions is in a record that is not committed yet, so nothing can be said of it.</param>
/// <param name="Refused">Why the leader could not make the record that had to be made first; null: that is not the reason.</param>
internal readonly record struct SessionsKept(Etag? Etag, bool IsEnding, WriteResult? Refused = null);
