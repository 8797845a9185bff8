namespace KvCluster.Storage.DataFile;

/// <summary>The bounds of a data file.</summary>
internal sealed record PageStoreOptions
{
    /// <summary>
    /// The file is mapped in pieces of this many bytes, a power of two. The next one is added when the file grows into it. Large, because pages of the
    /// largest file should be in few pieces. Addresses cost nothing; page tables are needed only for the size of the file.
    /// </summary>
    public long MapBytes { get; init; } = 64L << 30;

    /// <summary>Snapshots that may be open at once, at least <see cref="ReaderSlots.SlotsMin"/>. A multiple of the streams that a node serves.</summary>
    public int SnapshotsMax { get; init; } = 4096;

    /// <summary>
    /// Bytes of memory and of the file that callers' snapshots may keep from being reused, besides what a checkpoint that took both meta pages has left
    /// (<see cref="OlderBytesMax"/>). Above this the one that keeps most is asked to end. The default equals the amount of changed pages that starts a
    /// checkpoint, so a long reader can at most double the memory.
    /// </summary>
    public long PinnedBytesMax { get; init; } = 256 << 20;

    /// <summary>
    /// The same for snapshots of digests, which callers cannot end by what they hold themselves: a digest of 10 GB takes minutes, and one that is given up is
    /// computed for nothing. Snapshots for followers, and backups, hold no memory: a pin keeps pages of the file, no more than its checkpoint has.
    /// </summary>
    public long DigestPinnedBytesMax { get; init; } = 1 << 30;

    /// <summary>
    /// Bytes of free memory that are kept for the next changed pages, until the store is quiescent or memory is short. The default equals the amount of changed
    /// pages that starts a checkpoint, because under load the next one takes as much, and memory from the system costs a fault and zeros for each page. Where
    /// the memory of the node allows more changed pages, as many more are kept.
    /// </summary>
    public long FreeScratchBytesMax { get; init; } = 256 << 20;

    /// <summary>
    /// Whether writes bypass the page cache where the file system supports it. Off by default: every page would be cold after its checkpoint, and readers
    /// and the writer would wait for the disk on its first access. With 10 million keys in a cluster of three that cost a tenth of the reads per second.
    /// </summary>
    public bool Direct { get; init; }

    /// <summary>
    /// Bytes of memory that a changed leaf of the file takes at most as a delta of it (<see cref="Pages.DeltaPage"/>), up to
    /// <see cref="Pages.ScratchPool.BlockBytesMax"/>; 0: changed leaves are held whole.
    /// </summary>
    public int DeltaBytesMax { get; init; } = DeltaBytesMaxDefault;

    /// <summary>
    /// Whether values that do not fill whole pages are divided between their leaf and a run, and stay in the leaf up to half of it. False as long as programs
    /// that cannot read such a file may have to (format levels below 4). A file that has it keeps what was written.
    /// </summary>
    public bool DividesValues { get; init; } = true;

    /// <summary>
    /// Whether values are compressed with LZ4 where that saves a quarter of them. Off by default: it takes time for each put and read, and pays where values
    /// are text and space or the page cache is short. Only where values are divided, and not as long as programs that cannot read such a file may have to
    /// (format levels below 5). A file that has it keeps what was written, and is read whatever this says.
    /// </summary>
    public bool CompressesValues { get => field && DividesValues; init; }

    /// <summary>The least version that a file with these options has.</summary>
    public uint FileVersionMin =>
        CompressesValues ? Pages.MetaPage.FormatVersion : DividesValues ? Pages.MetaPage.FormatVersionOfDividedValues : Pages.MetaPage.FormatVersionMin;

    /// <summary>
    /// Bytes of the file that only the checkpoint before the newest may have if the newest has folded deltas, unless they are a small part of it. With more the
    /// newest takes both meta pages, so that its successor finds them free and the file has two states of the data and not three. That costs a synced write.
    /// </summary>
    public long OlderBytesMax { get; init; } = 16 << 20;

    /// <summary>What stores have that say nothing else. Tests set it, to run over trees with smaller deltas or with whole leaves.</summary>
    internal static int DeltaBytesMaxDefault { get; set; } = Pages.ScratchPool.BlockBytesMax;

    /// <summary>Tests: whether a leaf stays whole at the end of a batch although its delta would be small. Null: no leaf does.</summary>
    internal Func<bool>? StaysWhole { get; init; } = StaysWholeDefault;

    /// <summary>See <see cref="DeltaBytesMaxDefault"/>.</summary>
    internal static Func<bool>? StaysWholeDefault { get; set; }

    /// <summary>
    /// Size of one write of a checkpoint in bytes: that of a huge page, which the kernel then maps as a whole; small enough to let journal writes in
    /// between.
    /// </summary>
    public int WriteBytes { get; init; } = 2 << 20;

    /// <summary>
    /// References and pages that one step of a checkpoint's end looks at on the writer, about 0.2 µs each when they are not in the processor's cache. A step
    /// that returns memory takes a sixteenth of that in pages, each of which costs much more.
    /// </summary>
    public int StepPages { get; init; } = 1_024;
}
