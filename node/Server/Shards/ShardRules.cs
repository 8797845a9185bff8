namespace KvCluster.Node.Shards;

/// <summary>
/// Decisions of a shard's driver without which it would seem to work until something fails: these are the right ones. The simulation hands in others, one of them
/// wrong, to prove that it would notice (<see cref="ShardReplicaContext.Rules"/>); nobody else derives from it. Asked where a lease is missing or a replica has failed, on
/// the writer executor.
/// </summary>
internal class ShardRules
{
    /// <summary>The driver's own.</summary>
    public static ShardRules Own { get; } = new();

    /// <summary>Whether a failed condition may be answered though no lease covers what it found: it is a read, and waits for a round like any other.</summary>
    public virtual bool AnswersConditionsWithoutLease => false;

    /// <summary>Whether what was thrown ends the replica, which then says why.</summary>
    public virtual bool Ends(Exception failure) => true;
}
