namespace KvCluster.Storage.Trees;

/// <summary>
/// How much one request may still delete of ranges and large sets, counted in what holds up the writer: leaves that have to be read, and leaves that are
/// dropped by the references of their branches (<c>StoreOptions.RangeLeavesMax</c>, <c>StoreOptions.RangeLeavesUnreadMax</c>).
/// </summary>
/// <param name="read">Leaves that may be read.</param>
/// <param name="unread">Leaves that may be dropped unread.</param>
internal struct RangeAllowance(int read, int unread)
{
    /// <summary>
    /// What a branch counts as beside its leaves: reading it from a disk takes as long as dropping so many of them. Branches with long keys have few leaves.
    /// </summary>
    private const int UnreadPerBranch = 256;

    private int _read = read;
    private int _unread = unread;

    /// <summary>Whether no further leaf is allowed.</summary>
    public readonly bool IsSpent => _read <= 0 || _unread <= 0;

    /// <summary>Takes a leaf that is read.</summary>
    public void TakeRead() => _read--;

    /// <summary>Takes a leaf that is dropped unread.</summary>
    public void TakeUnread() => _unread--;

    /// <summary>Takes a branch that is dropped.</summary>
    public void TakeBranch() => _unread -= UnreadPerBranch;
}
