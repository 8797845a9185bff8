using System.Buffers.Binary;
using System.Security.Cryptography;
using KvCluster.Node.Runtime;
using KvCluster.Node.Shards.Disk;
using KvCluster.Node.Telemetry;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.Files;
using KvCluster.Storage.Shared;
using KvCluster.Storage.Threads;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Hosting;

/// <summary>
/// What a node's replicas share: a fixed set of writer, journal and checkpoint threads, one that reads pages for the writers, one that reads the journal for
/// watchers, one that syncs segments for the shared journal, that journal, the timers, the node's disk and memory, and the pace of digests. Created and
/// disposed by <see cref="ShardHost"/>, after the last replica; used on any thread.
/// </summary>
internal sealed class ShardThreads : IAsyncDisposable
{
    /// <summary>
    /// Writers, and as many threads for checkpoints: enough for the disks of two cores. A shard's id binds it to one of each; its journal has a lane on each
    /// journal thread, of which there are as many as <see cref="StoreOptions.JournalWrites"/>; with a shared journal all shards prefer the same one, and each
    /// has a lane on one of <see cref="Asides"/>.
    /// </summary>
    private const int Writers = 2;

    /// <summary>
    /// With a shared journal, the threads for what is not written together. A new segment or a control state takes some syncs, and a file system does those of
    /// several threads together.
    /// </summary>
    private const int Asides = 4;

    private readonly WorkThread[] _writers = Threads("writer", Writers);
    private readonly WorkThread[] _journals;
    private readonly WorkThread[] _asides;
    private readonly WorkThread[] _checkpoints = Threads("checkpoint", Writers, WorkThread.BackgroundNice);
    private readonly WorkThread _prefetch = new("kv-prefetch", BootClock.Instance);
    private readonly WorkThread _tails = new("kv-tail", BootClock.Instance, WorkThread.BackgroundNice);
    private readonly WorkThread _syncs = new("kv-segment-sync", BootClock.Instance, WorkThread.BackgroundNice);
    private readonly SharedJournal? _sharedJournal;
    private readonly SharedTimers _timers = new(BootClock.Instance);
    private readonly DigestPace _digestPace;
    private readonly MemoryAccount _memory;
    private readonly SharedDisk _sharedDisk;
    private readonly ILogger _log;

    /// <param name="options">The bounds of every replica's store.</param>
    /// <param name="dataDirectory">The directory below which all of them are.</param>
    /// <param name="memory">What all of them may use.</param>
    /// <param name="metrics">The node's metrics.</param>
    /// <param name="logs">For the logs of stores and threads.</param>
    /// <param name="diskFailed">Told when the shared journal has failed, also while no shard writes.</param>
    public ShardThreads(
        StoreOptions options, string dataDirectory, MemoryAccount memory, NodeMetrics metrics, ILoggerFactory logs, Action<Exception> diskFailed)
    {
        Options = options;
        _log = logs.CreateLogger<ReplicaStore>();
        _journals = Threads("journal", options.JournalWrites);
        _asides = Threads("journal-aside", options.SharesJournal ? Asides : 0);
        if (options.SharesJournal)
            _sharedJournal = new SharedJournal(
                LocalDisk.Instance, dataDirectory, BinaryPrimitives.ReadUInt64LittleEndian(RandomNumberGenerator.GetBytes(sizeof(ulong))),
                SharedJournal.FileBytesOfNode, _journals, _syncs, diskFailed, _log);
        _memory = memory;
        _digestPace = new DigestPace(options.DigestBytesPerSecond);
        _sharedDisk = new SharedDisk(_timers);
        Disk = new NodeDisk(_timers);
        Stalls = new StallWatch(_writers, metrics, logs.CreateLogger<StallWatch>());
        _timers.Late = Stalls.TimersWereLate;
    }

    /// <summary>The bounds of every replica's store.</summary>
    public StoreOptions Options { get; }

    /// <summary>The boot clock, with timers that fire on a thread of their own.</summary>
    public TimeProvider Timers => _timers;

    /// <summary>The shared judgement of the disk.</summary>
    public NodeDisk Disk { get; }

    /// <summary>Watches whether writers and timers make progress.</summary>
    public StallWatch Stalls { get; }

    /// <summary>Whether a closed replica's directory may lack something that only the shared journal has, so that it must stay where it is.</summary>
    public bool HasUnsettled => _sharedJournal is { Failure: not null };

    /// <summary>The threads and bounds of a shard's store.</summary>
    public StoreContext StorageOf(ShardId shard, StoreObserver observer) => new(
        LocalDisk.Instance,
        _writers[shard.Value % Writers],
        [.. Enumerable.Range(0, _journals.Length).Select(lane => _journals[((_sharedJournal is null ? shard.Value : 0) + lane) % _journals.Length])],
        _checkpoints[shard.Value % Writers],
        _timers,
        _log,
        Options)
    {
        DigestPace = _digestPace,
        Memory = _memory,
        SharedDisk = _sharedDisk,
        SharedJournal = _sharedJournal,
        JournalAside = _sharedJournal is null ? null : _asides[shard.Value % Asides],
        Prefetch = _prefetch,
        TailReads = _tails,
        Observer = observer,
    };

    public async ValueTask DisposeAsync()
    {
        await Stalls.DisposeAsync().ConfigureAwait(false);
        foreach (var thread in (WorkThread[])[.. _writers, .. _journals, .. _asides, .. _checkpoints, _prefetch, _tails, _syncs])
            thread.Dispose();
        try
        {
            // Without a failure it leaves nothing: every replica's directory is whole then.
            _sharedJournal?.Dispose();
        }
        catch (StorageIoException failure)
        {
            StoreLog.SharedJournalLeft(_log, failure.Message);
        }
        _timers.Dispose();
    }

    private static WorkThread[] Threads(string kind, int count, int nice = 0) =>
        [.. Enumerable.Range(0, count).Select(index => new WorkThread($"kv-{kind}-{index}", BootClock.Instance, nice))];
}
