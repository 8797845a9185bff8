namespace KvCluster.Storage.DataFile;

/// <summary>
/// How old open snapshots are, for metrics. A snapshot takes no time of its own when it is opened, which is done for every read: its age counts from when it was first looked at, so it is
/// at most one interval of the looks too small. Used on the writer only; who does not look pays nothing.
/// </summary>
internal sealed class SnapshotAges(PageStore pages, TimeProvider time)
{
    private readonly List<ReaderSlots.Reader> _present = [];
    private Dictionary<(int Slot, ulong Ticket), long> _seen = [];
    private Dictionary<(int Slot, ulong Ticket), long> _seenBefore = [];

    /// <summary>Looks, and gives the age of the oldest; zero without any.</summary>
    public TimeSpan Oldest()
    {
        pages.CollectReaders(_present);
        var now = time.GetTimestamp();
        var oldest = now;
        (_seen, _seenBefore) = (_seenBefore, _seen);
        _seen.Clear();
        foreach (var reader in _present)
        {
            var since = _seenBefore.GetValueOrDefault((reader.Slot, reader.Ticket), now);
            _seen[(reader.Slot, reader.Ticket)] = since;
            oldest = Math.Min(oldest, since);
        }
        return time.GetElapsedTime(oldest, now);
    }
}
