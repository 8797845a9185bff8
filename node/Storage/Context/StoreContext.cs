using KvCluster.Storage.Files;
using KvCluster.Storage.Shared;
using KvCluster.Storage.Threads;
using Microsoft.Extensions.Logging;

namespace KvCluster.Storage.Context;

/// <summary>The environment of a shard's engine.</summary>
/// <param name="Files">The disk.</param>
/// <param name="Writer">Runs all shard logic: batches, applying, publishing, events.</param>
/// <param name="JournalLanes">Execute the writes of the journal and, without <see cref="JournalAside"/>, of the control file. Each has at most one in flight.
/// </param>
/// <param name="Checkpoints">Executes the writes of checkpoints.</param>
/// <param name="Time">Clock for deadlines and the checkpoint interval.</param>
/// <param name="Log">Gets one line per decision.</param>
/// <param name="Options">Bounds.</param>
/// <param name="Completions">Runs callers' continuations; null: the thread pool. The simulator passes a queue of its own.</param>
internal sealed record StoreContext(
    IFileSystem Files,
    ISerialExecutor Writer,
    IReadOnlyList<ISerialExecutor> JournalLanes,
    ISerialExecutor Checkpoints,
    TimeProvider Time,
    ILogger Log,
    StoreOptions Options,
    ISerialExecutor? Completions = null)
{
    /// <summary>Schedules the steps of background digests and scrubs. One instance for all shards of a node.</summary>
    public DigestPace DigestPace { get; init; } = new(Options.DigestBytesPerSecond);

    /// <summary>
    /// The memory of all stores of a node and its budget. One instance for all shards; by default there is no budget, and each store has only its own bounds.
    /// </summary>
    public MemoryAccount Memory { get; init; } = new(long.MaxValue, Time);

    /// <summary>The other stores on the disk. One instance for all shards of a node; by default a store is alone on it.</summary>
    public SharedDisk SharedDisk { get; init; } = new(Time);

    /// <summary>Makes records of several stores durable with one write. One instance for all shards of a node; null: each store does so by itself.</summary>
    public SharedJournal? SharedJournal { get; init; }

    /// <summary>
    /// With <see cref="SharedJournal"/>: executes what would keep <see cref="JournalLanes"/> from writes of other stores, that is new segments, control states
    /// and long records. Null: the lanes do.
    /// </summary>
    public ISerialExecutor? JournalAside { get; init; }

    /// <summary>Bytes of changed pages that start a checkpoint if no other store has any.</summary>
    public long ChangedBytesForCheckpoint => Math.Max(Options.CheckpointScratchBytes, Memory.ChangedPagesPlenty);

    /// <summary>
    /// Returns why a record cannot be applied here, or null to let its content decide. With this, tests simulate a node whose version is too old for a
    /// record. Called on the writer executor and during an open, once for each record that is applied from the journal.
    /// </summary>
    public Func<RecordRef, string?> Unreadable { get; init; } = static _ => null;

    /// <summary>Reads pages for the writer that are not in memory. One for all shards of a node; null: the writer reads them all itself.</summary>
    public ISerialExecutor? Prefetch { get; init; }

    /// <summary>Reads older records of the journal for those who follow the shard. One for all shards of a node.</summary>
    public ISerialExecutor TailReads { get; init; } = Checkpoints;

    /// <summary>Measures and traces this shard's store.</summary>
    public StoreObserver Observer { get; init; } = StoreObserver.None;
}

/// <summary>The engine has stopped. The inner exception is the first failure, or null after disposal.</summary>
internal sealed class StoreStoppedException(Exception? first)
    : Exception(first is null ? "The store was closed." : $"The store has stopped: {first.Message}", first);
