namespace KvCluster.Node.Shards;

/// <summary>
/// Decisions of a shard's driver that would seem to work if they were wrong, until something fails. These are the correct ones. The simulation passes in
/// others, with one of them wrong, to prove that it would notice (<see cref="ShardReplicaContext.Rules"/>); nobody else derives from this class. Called when
/// a lease is missing or a replica has failed, on the writer executor.
/// </summary>
internal class ShardRules
{
    /// <summary>The driver's own rules.</summary>
    public static ShardRules Own { get; } = new();

    /// <summary>
    /// Whether a failed condition may be answered although no lease covers what it found. It may not: it is a read, and waits for a round like any other.
    /// </summary>
    public virtual bool AnswersConditionsWithoutLease => false;

    /// <summary>Whether an exception ends the replica, which then reports it.</summary>
    public virtual bool Ends(Exception failure) => true;
}
