namespace KvCluster.Storage.DataFile;

/// <summary>
/// The age of the oldest open snapshot, for metrics; it bounds nothing. Opening a snapshot reads no clock, because that is done for every read. The age counts
/// from when the snapshot was first seen here, so it is too small by at most one interval between calls. Writer only; costs nothing unless it is called.
/// </summary>
internal sealed class SnapshotAgeReading(ReaderSlots readers, TimeProvider time)
{
    private readonly List<ReaderSlots.Reader> _present = [];
    private Dictionary<(int Slot, ulong Ticket), long> _seen = [];
    private Dictionary<(int Slot, ulong Ticket), long> _seenBefore = [];

    /// <summary>Updates the ages and returns that of the oldest snapshot; zero without any.</summary>
    public TimeSpan Age()
    {
        readers.Collect(_present);
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
