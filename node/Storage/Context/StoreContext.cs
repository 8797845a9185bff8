using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Threads;
using Microsoft.Extensions.Logging;

namespace KvCluster.Storage.Context;

/// <summary>What a shard's engine runs on.</summary>
/// <param name="Files">The disk.</param>
/// <param name="Writer">Runs all shard logic: batches, applying, publishing, events.</param>
/// <param name="JournalLanes">Run the journal's and the control file's writes; as many may be in flight as there are lanes.</param>
/// <param name="Checkpoints">Runs the checkpoints' writes.</param>
/// <param name="Time">Clock for deadlines and the checkpoint interval.</param>
/// <param name="Log">One line a decision.</param>
/// <param name="Options">Bounds.</param>
/// <param name="Completions">Where callers' continuations run; null: on the thread pool. The simulator gives a queue of its own.</param>
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
    /// <summary>When digests in the background take their next step; one for all shards of a node.</summary>
    public DigestPace DigestPace { get; init; } = new(Options.DigestBytesPerSecond);

    /// <summary>
    /// Why a record of another maker cannot be applied here; null: what it holds decides. By this tests make of a node one whose version is too old for a record.
    /// Asked on the writer executor and at opening, once for each record that is read back.
    /// </summary>
    public Func<RecordRef, string?> Unreadable { get; init; } = static _ => null;

    /// <summary>What the engine decides by; tests give it wrong ones.</summary>
    public StoreRules Rules { get; init; } = StoreRules.Own;

    /// <summary>Who measures and traces this shard's store.</summary>
    public StoreObserver Observer { get; init; } = StoreObserver.None;
}
