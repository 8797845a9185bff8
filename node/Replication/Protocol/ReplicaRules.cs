using KvCluster.Replication.Log;

namespace KvCluster.Replication.Protocol;

/// <summary>
/// Decisions that would seem to work if they were wrong, until something fails. These are the correct ones. The simulation passes in others, with one of them
/// wrong, to prove that it would notice (<see cref="ReplicationOptions.Rules"/>); nobody else derives from this class. The decisions are rare (an epoch, a
/// truncation, a change of voters, a snapshot), never one per record written. Called on the executor of the replica.
/// </summary>
internal class ReplicaRules
{
    /// <summary>The protocol's own rules.</summary>
    public static ReplicaRules Own { get; } = new();

    /// <summary>
    /// What of a follower's journal is committed before any of it is matched with its present leader. Nothing is, because its tail may differ.
    /// </summary>
    /// <param name="journal">The follower's journal.</param>
    /// <param name="leaderCommitted">The committed etag that the leader reported.</param>
    public virtual Etag CommittedUnmatched(IJournalView journal, Etag leaderCommitted) => Etag.None;

    /// <summary>The record to which a tail is truncated: the last one in common with the leader.</summary>
    /// <param name="journal">The follower's journal.</param>
    /// <param name="common">The last record in common.</param>
    /// <param name="committed">What the follower knows to be committed.</param>
    public virtual LogPosition CutTo(IJournalView journal, LogPosition common, Etag committed) => common;

    /// <summary>
    /// Whether the record that a truncation kept is in common with the promised leader. It is only if that is the leader for which it was made.
    /// </summary>
    public virtual bool IsCommon(ulong truncationEpoch, ulong promised) => truncationEpoch == promised;

    /// <summary>Whether a replica that lost acknowledged records counts toward a majority. It does not until it has them again.</summary>
    public virtual bool MayCountRecovering => false;

    /// <summary>Whether a snapshot is outdated: this replica has what it covers, and installing it would lose what came after.</summary>
    public virtual bool IsOvertaken(IJournalView journal, LogPosition covers, Etag committed) => covers.Etag <= committed || TailMatch.Has(journal, covers);

    /// <summary>Whether an epoch is served as soon as its first record is appended. It is not: that record must be committed first.</summary>
    public virtual bool ServesBeforeOpen => false;

    /// <summary>What is committed when a majority has this record of an older epoch. Nothing is, because a later leader may still replace it.</summary>
    public virtual Etag CommittedByCount(Etag agreedOfOlderEpoch) => Etag.None;

    /// <summary>Whose majority commits in an epoch: that of the voters.</summary>
    /// <param name="voters">The voters that decide now.</param>
    /// <param name="view">All replicas.</param>
    public virtual Quorum Committing(Quorum voters, ShardView view) => voters;

    /// <summary>Whose majority decides from before a change of voters is sent until its outcome is known: that of both sets.</summary>
    public virtual Quorum WhileChanging(Quorum before, Quorum after) => after.SameAs(before) ? after : Quorum.Joint(before, after);
}
