using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Storage;

/// <summary>
/// How a <see cref="KvStore"/> is opened. The defaults suit a store of any size beside other work in the process. There is no option for durability: a write is
/// answered when it is on stable storage.
/// </summary>
public sealed record KvStoreOptions
{
    /// <summary>Least value of <see cref="MemoryBudgetBytes"/>.</summary>
    public const long MemoryBudgetBytesMin = 32 << 20;

    /// <summary>Least value of <see cref="CheckpointJournalBytes"/>: the first segment of a journal.</summary>
    public const long CheckpointJournalBytesMin = 1 << 20;

    /// <summary>Greatest value of <see cref="JournalWrites"/>.</summary>
    public const int JournalWritesMax = 16;

    /// <summary>Least value of <see cref="SnapshotsMax"/>.</summary>
    public const int SnapshotsMaxMin = ReaderSlots.SlotsMin;

    /// <summary>
    /// Memory for changed pages that are not in the data file yet, for journal records and for waiting writes, in bytes. From half of it on writers are slowed
    /// until a checkpoint is written. What readers touch is in the system's page cache and does not count.
    /// </summary>
    public long MemoryBudgetBytes { get; init; } = 512 << 20;

    /// <summary>
    /// Journal that starts a checkpoint, in bytes. It bounds what the next open has to replay after a crash, which is a third more if the disk writes the
    /// checkpoint meanwhile: the default takes about a second. The larger it is, the faster are puts in random order over many keys.
    /// </summary>
    public long CheckpointJournalBytes { get; init; } = 128 << 20;

    /// <summary>
    /// Whether the space of a new journal file is written once, as zeros, before it is used. It makes durable writes faster on most disks (on ext4 by a third),
    /// and costs each byte of the journal a second write until files are used again. It does not pay on file systems that copy on write, such as btrfs. Null:
    /// measured at each open, with some dozen small writes, which takes some milliseconds on a fast disk and a quarter of a second at most on a slow one.
    /// </summary>
    public bool? FillJournal { get; init; } = true;

    /// <summary>
    /// Whether large journal records are compressed with LZ4. It takes about a millisecond of a processor for 1 MiB, and pays where the disk takes several
    /// times as long. Whatever is chosen, every open reads both. Null: measured at each open, with some writes of 1 MiB, which take a quarter of a second at
    /// most.
    /// </summary>
    public bool? CompressJournal { get; init; } = false;

    /// <summary>
    /// Whether values are compressed with LZ4 in the data file where that saves a quarter of them, from 256 bytes on. It suits text, such as JSON, and stores
    /// that are larger than the memory; a put and a read of such a value take longer. Whatever is chosen, every open reads both, and values change their form
    /// when they are put again. A store that was ever opened with it has version 7 of the data file, which earlier versions of this library refuse.
    /// </summary>
    public bool CompressValues { get; init; }

    /// <summary>
    /// Writes of the journal that may be in flight, each of which has a thread: 1 to <see cref="JournalWritesMax"/>. Two suit most disks. Four serve hundreds
    /// of callers up to a third better where a durable write takes some milliseconds, as on a disk that is reached over a network. Null: measured at each open,
    /// with the same writes as <see cref="FillJournal"/>.
    /// </summary>
    public int? JournalWrites { get; init; } = 2;

    /// <summary>Snapshots that may be open at a time. Each takes a cache line.</summary>
    public int SnapshotsMax { get; init; } = 4_096;

    /// <summary>Gets one line for each decision, such as what an open found. By default nothing is logged.</summary>
    public ILogger Log { get; init; } = NullLogger.Instance;

    /// <summary>The clock for intervals and pauses. Tests may pass another one.</summary>
    public TimeProvider Time { get; init; } = SystemClock;

    /// <summary>The system's clock: whoever embeds the engine need not pass one. Inside it is passed on.</summary>
#pragma warning disable RS0030
    internal static TimeProvider SystemClock => TimeProvider.System;
#pragma warning restore RS0030

    /// <summary>The bounds of the engine. Nothing is kept for followers, because there are none.</summary>
    internal StoreOptions Engine => new()
    {
        CheckpointJournalBytes = CheckpointJournalBytes,
        RetainedJournalBytes = 0,
        FillSegments = FillJournal ?? true,
        CompressRecords = CompressJournal ?? false,
        JournalWrites = JournalWrites ?? 2,
        Pages = new PageStoreOptions { SnapshotsMax = SnapshotsMax, CompressesValues = CompressValues },
    };

    /// <exception cref="ArgumentOutOfRangeException">A value is out of range.</exception>
    internal void Validate()
    {
        ArgumentOutOfRangeException.ThrowIfLessThan(MemoryBudgetBytes, MemoryBudgetBytesMin);
        ArgumentOutOfRangeException.ThrowIfLessThan(CheckpointJournalBytes, CheckpointJournalBytesMin);
        ArgumentOutOfRangeException.ThrowIfLessThan(SnapshotsMax, SnapshotsMaxMin);
        if (JournalWrites is { } writes)
        {
            ArgumentOutOfRangeException.ThrowIfLessThan(writes, 1, nameof(JournalWrites));
            ArgumentOutOfRangeException.ThrowIfGreaterThan(writes, JournalWritesMax, nameof(JournalWrites));
        }
        ArgumentNullException.ThrowIfNull(Log);
        ArgumentNullException.ThrowIfNull(Time);
    }
}
