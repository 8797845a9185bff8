namespace KvCluster.Replication.Leading;

/// <summary>
/// A leader's lease: the leadership that holds it, and its end. It is only for reads, which it saves a round of heartbeats; a leader without a lease still
/// takes writes. It ends by the clock, and before that when the leadership does: no majority has answered for too long (<c>Heartbeats.IsAlone</c>), or another
/// replica has promised a higher epoch (<c>EpochFencing</c>). Immutable, so that readers on other threads see leadership and end as a pair. An end alone could
/// be that of a later leadership than the one in which a snapshot was taken. <see cref="Leader.LeaseEndUs"/> computes the end;
/// <c>ReplicaReads.IsCovered</c> asks for each read.
/// </summary>
/// <param name="Epoch">The leadership's epoch; 0: none.</param>
/// <param name="EndUs">In microseconds of the boot clock; 0: no lease.</param>
internal sealed record ReadLease(ulong Epoch, long EndUs)
{
    /// <summary>The lease of a replica that does not serve.</summary>
    public static readonly ReadLease None = new(0, 0);

    /// <summary>
    /// Whether a linearizable read may be answered from a snapshot. The snapshot must be of the same leadership. A leader that was deposed and leads again
    /// has a lease, but an earlier snapshot may lack what another leader committed in between.
    /// </summary>
    /// <param name="snapshot">The snapshot's etag; it was taken after the read arrived and before this lease and the clock were read.</param>
    /// <param name="nowUs">The boot clock.</param>
    public bool Covers(Etag snapshot, long nowUs) => nowUs < EndUs && snapshot.Epoch == Epoch;
}
