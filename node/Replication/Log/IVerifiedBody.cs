namespace KvCluster.Replication.Log;

/// <summary>
/// A body from a peer that <see cref="IJournalView.TryVerify"/> has checked, in the form in which the journal appends it. It is checked once; whoever has this
/// need not check again.
/// </summary>
internal interface IVerifiedBody
{
    /// <summary>Its header and checksum.</summary>
    RecordRef Record { get; }
}
