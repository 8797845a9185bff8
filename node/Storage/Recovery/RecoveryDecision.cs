namespace KvCluster.Storage.Recovery;

/// <summary>What becomes of a directory by a row of <c>RecoveryTable</c>.</summary>
internal enum RecoveryDecision
{
    /// <summary>Nothing that was durable is missing: it opens.</summary>
    Open,

    /// <summary>
    /// The checkpoint is whole, and behind it something durable is, or may be, missing. A replica with peers opens with what there is and
    /// neither votes, acknowledges nor leads until they have refilled it; alone it is refused.
    /// </summary>
    Refill,

    /// <summary>Promises or checkpoint are lost: refused. The replica is to be rebuilt from a peer under a new id.</summary>
    Rebuild,
}
