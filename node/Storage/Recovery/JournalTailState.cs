namespace KvCluster.Storage.Recovery;

/// <summary>
/// What follows the last intact record of a journal's last segment. <see cref="JournalScan"/> decides it (<c>ReadTail</c>), and
/// <see cref="RecoveryDecisions"/> says what follows from it.
/// </summary>
internal enum JournalTailState
{
    /// <summary>
    /// No record of this incarnation was being written directly after the last one. If two writes were in flight, the later one may still have reached the
    /// disk.
    /// </summary>
    Clean,

    /// <summary>A record after the end is torn, or intact but not chained. Nothing shows that the missing part was durable.</summary>
    Torn,

    /// <summary>A later record proves that the missing part was durable.</summary>
    Lost,

    /// <summary>Something after the end cannot be read. A torn write does not cause that, so an intact record may have been there.</summary>
    Unreadable,
}
