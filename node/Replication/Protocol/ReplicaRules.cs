using KvCluster.Replication.Log;

namespace KvCluster.Replication.Protocol;

/// <summary>
/// Decisions of the protocol without which it would seem to work until something fails: these are the right ones. The simulation hands in others, one of them wrong,
/// to prove that it would notice (<see cref="ReplicationOptions.Rules"/>); nobody else derives from it. Asked where something rare happens, an epoch, a cut, a change of
/// voters, a snapshot, never for each record that is written; on the executor of the replica that asks.
/// </summary>
internal class ReplicaRules
{
    /// <summary>The protocol's own.</summary>
    public static ReplicaRules Own { get; } = new();

    /// <summary>What of a follower's journal is committed before anything of it is matched with its present leader: nothing, its tail may be another one.</summary>
    /// <param name="journal">The follower's.</param>
    /// <param name="leaderCommitted">As the leader says.</param>
    public virtual Etag CommittedUnmatched(IJournalView journal, Etag leaderCommitted) => Etag.None;

    /// <summary>The record to which a tail is cut: the last one in common with the leader.</summary>
    /// <param name="journal">The follower's.</param>
    /// <param name="common">The last record in common.</param>
    /// <param name="committed">What the follower knows to be committed.</param>
    public virtual LogPosition CutTo(IJournalView journal, LogPosition common, Etag committed) => common;

    /// <summary>Whether the record that a cut kept is in common with the promised leader: only with the one for which it was cut.</summary>
    public virtual bool IsCommon(ulong epochOfCut, ulong promised) => epochOfCut == promised;

    /// <summary>Whether a journal with a gap may count: what is behind the gap was acknowledged once, and may be gone.</summary>
    public virtual bool MayCountRecovering => false;

    /// <summary>Whether a snapshot is overtaken: this replica has what it covers, and installing it would lose what came after.</summary>
    public virtual bool IsOvertaken(IJournalView journal, LogPosition covers, Etag committed) => covers.Etag <= committed || TailMatch.Has(journal, covers);

    /// <summary>Whether an epoch is served as soon as its first record is appended: not before that is committed.</summary>
    public virtual bool ServesBeforeOpen => false;

    /// <summary>What is committed when a majority has this record of an older epoch: nothing, a later leader may still replace it.</summary>
    public virtual Etag CommittedByCount(Etag agreedOfOlderEpoch) => Etag.None;

    /// <summary>Whose majority commits in an epoch: the voters'.</summary>
    /// <param name="voters">Those that decide now.</param>
    /// <param name="view">All replicas.</param>
    public virtual Quorum Committing(Quorum voters, ShardView view) => voters;

    /// <summary>Whose majority decides from before a change of the voters is sent until its outcome is known: that of both sets.</summary>
    public virtual Quorum WhileChanging(Quorum before, Quorum after) => after.SameAs(before) ? after : Quorum.Joint(before, after);
}
