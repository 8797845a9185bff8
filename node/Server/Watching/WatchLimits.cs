namespace KvCluster.Node.Watching;

/// <summary>
/// The bounds of a node's watchers, and of the messages that they are sent. Events that a slow watcher has not taken wait until they are more than
/// <see cref="RunsWaitingMax"/> runs, or until their batch is no longer among those that <paramref name="KeptBytesMax"/> keeps in memory. Then what
/// waits is forgotten (<see cref="SlowWatchers"/>), and the watcher reads the journal by itself.
/// </summary>
/// <param name="JournalBytesMax">Bytes of journal that are kept for the watchers of a shard that lag.</param>
/// <param name="KeptBytesMax">Bytes of decoded events that a hub keeps. Asked for with each record; under a lock, so it must not block.</param>
internal sealed record WatchLimits(long JournalBytesMax, Func<long> KeptBytesMax)
{
    /// <summary>Runs of events that may wait for a slow watcher: some seconds of most streams, and some KiB.</summary>
    public const int RunsWaitingMax = 256;

    /// <summary>Bytes of bodies that a hub's pump reads at once.</summary>
    public const int PumpBytes = 1 << 20;

    /// <summary>Bytes of bodies that a watcher which is behind reads at once.</summary>
    public const int CatchUpBytes = 512 << 10;

    /// <summary>
    /// Watchers of a node that read the journal at the same time: enough to use the disk beside the node's other work, few enough to leave it to that.
    /// </summary>
    public const int CatchUpsMax = 4;

    /// <summary>
    /// About how many bytes of events are in one message, like in a page of a scan. Events of one record are not divided, so a message is larger only if the
    /// events of a record, or an entry that a watch begins with, are.
    /// </summary>
    public const int MessageBytes = 128 << 10;

    /// <summary>About what the events of a page of the journal take.</summary>
    public const int PageBytes = 512 << 10;

    /// <summary>Smaller messages are made for each watcher, which costs less than to look for one.</summary>
    public const int SharedMessageBytesMin = 4 << 10;

    /// <summary>The reader of a larger message is told of it before.</summary>
    public const int AnnouncedMessageBytesMin = 1 << 20;

    /// <summary>Bytes of encoded messages that a hub keeps for the next watcher of the same events, unless one alone has more.</summary>
    public const long SharedBytesMax = 4 << 20;

    // Bytes of decoded events that all hubs keep together, and one of them at most and at least.
    private const long KeptBytesOfNode = 64 << 20;
    private const long KeptBytesOfHubMax = 4 << 20;
    private const long KeptBytesOfHubMin = 256 << 10;

    /// <summary>How many bytes of decoded events each hub keeps if a node has so many hubs.</summary>
    public static long KeptBytesOf(int hubs) => Math.Clamp(KeptBytesOfNode / Math.Max(1, hubs), KeptBytesOfHubMin, KeptBytesOfHubMax);
}
