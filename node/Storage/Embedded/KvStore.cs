using System.Diagnostics.CodeAnalysis;
using System.Runtime.CompilerServices;
using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Files;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;

namespace KvCluster.Storage;

/// <summary>
/// An ordered key-value store in a directory, embedded in this process: named trees of keys with values and sets, atomic and durable batches, snapshots,
/// cursors, backups. One process has a directory open at a time. Any thread, many at a time; writes that wait together share one sync of the disk.
/// </summary>
/// <remarks>
/// A write is answered when it is on stable storage, and every snapshot that is opened afterwards has it. A crash at any moment loses nothing that was answered
/// and leaves no batch half applied. Failures are of the type <see cref="KvStoreException"/>. After one of the type <see cref="KvStoreFailedException"/> only
/// <see cref="DisposeAsync"/> is left. Every member throws an <see cref="ObjectDisposedException"/> after that.
/// </remarks>
public sealed class KvStore : IAsyncDisposable
{
    private static readonly TimeSpan FullQueuePauseFirst = TimeSpan.FromMilliseconds(1);
    private static readonly TimeSpan FullQueuePauseMax = TimeSpan.FromMilliseconds(16);

    private readonly StoreHome _home;
    private readonly StandaloneStore _engine;
    private readonly TimeProvider _time;
    private readonly TreeCatalogue _trees;
    private readonly Turns _backups = new();
    private readonly AdmissionLine _line = new();

    /// <summary>
    /// Cancelled when the disposal begins. Never disposed of: calls that are late still ask for its token, and without a timer it holds nothing.
    /// </summary>
    private readonly CancellationTokenSource _ending = new();
    private readonly Lazy<Task> _disposal;
    private volatile bool _isDisposed;

    private KvStore(StoreHome home, StandaloneStore engine, TimeProvider time)
    {
        (_home, _engine, _time) = (home, engine, time);
        _trees = new TreeCatalogue(this);
        _disposal = new Lazy<Task>(EndAsync);
    }

    /// <summary>The names of the trees, in no order.</summary>
    public IReadOnlyCollection<string> TreeNames
    {
        get
        {
            ThrowIfDisposed();
            return [.. _trees.Trees.Keys];
        }
    }

    /// <summary>Sizes and counts. The engine decides nothing by them.</summary>
    public KvStoreStatistics Statistics
    {
        get
        {
            ThrowIfDisposed();
            var engine = _engine.Store.Statistics;
            return new KvStoreStatistics(engine.DataBytes, engine.JournalBytes, engine.ScratchBytes, engine.PinnedBytes, engine.Readers, _trees.Trees.Count);
        }
    }

    /// <summary>
    /// Opens the store in a directory, or creates it there. The directory must have a store, be empty or not exist. Replays what the last checkpoint does not
    /// cover, which takes about a second for each 128 MiB after a crash. <see cref="DisposeAsync"/> leaves less than 4 MiB.
    /// </summary>
    /// <param name="directory">The directory. Nothing else may be kept in it.</param>
    /// <param name="options">Null: the defaults.</param>
    /// <exception cref="KvStoreInUseException">The store is open in another process, or in this one.</exception>
    /// <exception cref="KvStoreFormatException">The directory has something else in it, or the files of another version.</exception>
    /// <exception cref="KvStoreDamagedException">Something that was durable is, or may be, missing. Nothing was changed.</exception>
    /// <exception cref="KvStoreDiskException">The directory cannot be used, for example because it is a file or read-only.</exception>
    public static KvStore Open(string directory, KvStoreOptions? options = null)
    {
        ArgumentException.ThrowIfNullOrWhiteSpace(directory);
        options ??= new KvStoreOptions();
        options.Validate();
        StoreHome? home = null;
        StandaloneStore? engine = null;
        try
        {
            home = StoreHome.Take(directory);
            home.DiscardRestore();
            options = home.Choose(options);
            engine = StandaloneStore.Open(
                LocalDisk.Instance, home.Store, options.Engine, options.Time, options.Log, options.MemoryBudgetBytes, StoreIdentity.Embedded);
            var store = new KvStore(home, engine, options.Time);
            store.StartAsync().GetAwaiter().GetResult();
            return store;
        }
        catch (Exception failure)
        {
            engine?.Dispose();
            home?.Dispose();
            if (StoreErrors.TryTranslateOpen(failure, out var translated))
                throw translated;
            throw;
        }
    }

    /// <summary>
    /// Creates a store in a directory from a backup, which is verified as a whole. Reads as many bytes of the stream as the backup has. Until this has ended
    /// there is no store in the directory, also after a crash.
    /// </summary>
    /// <param name="source">The stream, at the beginning of what <see cref="BackupAsync"/> has written.</param>
    /// <param name="directory">A directory that is empty or does not exist.</param>
    /// <param name="options">Null: the defaults.</param>
    /// <param name="cancellationToken">Ends the restore; what it has written is removed.</param>
    /// <returns>
    /// The etag of the newest change in the backup. Later changes get greater ones; they do not compare with those of the store that was backed up.
    /// </returns>
    /// <exception cref="KvStoreDamagedException">The stream is not a whole backup.</exception>
    /// <exception cref="KvStoreFormatException">The directory has something in it, or the backup has another version.</exception>
    /// <inheritdoc cref="Open" path="/exception[@cref='KvStoreInUseException' or @cref='KvStoreDiskException']"/>
    public static async Task<Etag> RestoreAsync(Stream source, string directory, KvStoreOptions? options = null, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(source);
        ArgumentException.ThrowIfNullOrWhiteSpace(directory);
        options ??= new KvStoreOptions();
        options.Validate();
        using var home = TakeForRestore(directory);
        try
        {
            var etag = await StoreBackup.ReadAsync(source, home.Restoring, options, cancellationToken).ConfigureAwait(false);
            home.CompleteRestore();
            return etag;
        }
        catch (Exception failure)
        {
            try
            {
                home.DiscardRestore();
            }
            catch (StorageIoException)
            {
                // The first failure counts, and the next open or restore removes what is left.
            }
            // An exception of the source is passed on as it is, even if it is one of a file system.
            if (StoreErrors.TryTranslate(failure, out var translated))
                throw translated;
            throw;
        }
    }

    /// <summary>The tree with a name.</summary>
    /// <exception cref="KvTreeNotFoundException">There is none.</exception>
    public KvTree Tree(string name) =>
        TryGetTree(name, out var tree) ? tree
            : throw new KvTreeNotFoundException(name, $"There is no tree '{name}'. Create it with {nameof(CreateTreeAsync)}.");

    /// <summary>Finds the tree with a name.</summary>
    public bool TryGetTree(string name, [NotNullWhen(true)] out KvTree? tree)
    {
        ArgumentNullException.ThrowIfNull(name);
        ThrowIfDisposed();
        return _trees.Trees.TryGetValue(name, out tree);
    }

    /// <summary>Creates a tree, durably, or finds the one that has the name.</summary>
    /// <param name="name">1 to 255 bytes of UTF-8.</param>
    /// <param name="cancellationToken">Ends the wait.</param>
    /// <exception cref="ArgumentException">The name is empty, too long or not valid Unicode.</exception>
    /// <exception cref="KvStoreException">There are as many trees as may be.</exception>
    public Task<KvTree> CreateTreeAsync(string name, CancellationToken cancellationToken = default)
    {
        ThrowIfDisposed();
        return _trees.CreateAsync(name, cancellationToken);
    }

    /// <summary>
    /// Removes a tree with all its keys and sets. Its name is gone, durably, before its keys are removed; what a crash or the token leaves of them is removed
    /// by the next open. Snapshots from before still have the tree. A batch that is written meanwhile is applied before, or refused as a whole.
    /// </summary>
    /// <exception cref="KvTreeNotFoundException">The tree was dropped before.</exception>
    public Task DropTreeAsync(KvTree tree, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(tree);
        ThrowIfDisposed();
        tree.ThrowUnlessOf(this, nameof(tree));
        return _trees.DropAsync(tree, cancellationToken);
    }

    /// <summary>
    /// Applies a batch as a whole if all its conditions hold, and otherwise changes nothing. When this returns, the outcome is on stable storage and visible.
    /// While too much waits for the disk it waits for its turn.
    /// </summary>
    /// <param name="batch">Belongs to the store from here on, and cannot be used again.</param>
    /// <param name="cancellationToken">Takes the batch back while it waits. A batch that is on its way to the disk is not stopped.</param>
    /// <exception cref="InvalidOperationException">The batch was written before, or another thread uses it at this moment.</exception>
    /// <exception cref="KvTreeNotFoundException">
    /// One of its trees was dropped, or is dropped while the batch waits for its turn. Nothing was changed.
    /// </exception>
    /// <exception cref="KvSetTooLargeException">The batch deletes a set that is too large for that. Nothing was changed.</exception>
    /// <exception cref="KvStoreDiskException">The disk is full, and the batch puts values or adds members. Nothing was changed.</exception>
    /// <exception cref="KvStoreFailedException">The store has stopped; see <see cref="KvStoreFailedException.IsOutcomeUnknown"/>.</exception>
    /// <exception cref="OperationCanceledException">The batch was taken back. Nothing was changed.</exception>
    [AsyncMethodBuilder(typeof(PoolingAsyncValueTaskMethodBuilder<>))]
    public async ValueTask<KvWriteResult> WriteAsync(KvBatch batch, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(batch);
        ThrowIfDisposed();
        cancellationToken.ThrowIfCancellationRequested();
        var result = await SubmitAsync(batch.Take(this), cancellationToken, batch).ConfigureAwait(false);
        return new KvWriteResult(result.Outcome == WriteOutcome.Applied, result.Etag, result.FailedCondition);
    }

    /// <summary>
    /// The same for a caller that cannot await: the thread stands still until the batch is answered. Prefer <see cref="WriteAsync"/>: a thread of the pool
    /// that waits for its result keeps others from running, and the answer, which is given on the pool, may wait for seconds until there is another thread.
    /// The answer of this needs none.
    /// </summary>
    /// <inheritdoc cref="WriteAsync"/>
    public KvWriteResult Write(KvBatch batch, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(batch);
        ThrowIfDisposed();
        cancellationToken.ThrowIfCancellationRequested();
        var request = batch.Take(this);
        request.IsAwaitedByThread = true;
        var (completion, change) = (request.Completion, new QueuedChange(request, request.Life));
        try
        {
            if (_line.IsTaken || !TrySubmit(request, batch))
                WaitForRoom(request, batch, cancellationToken);
        }
        catch (Exception refusal) when (refusal is OperationCanceledException or KvTreeNotFoundException)
        {
            request.Return();
            throw;
        }
        using var giveUp = change.GiveUpWith(cancellationToken);
        var result = Evaluated(completion.AsTask().GetAwaiter().GetResult(), cancellationToken);
        return new KvWriteResult(result.Outcome == WriteOutcome.Applied, result.Etag, result.FailedCondition);
    }

    /// <summary>
    /// Removes the keys of a tree from one to another, with their values; their sets stay. A large range is removed from its beginning on, in steps of some
    /// megabytes that are atomic and durable each, so that others' writes do not wait for all of it.
    /// </summary>
    /// <param name="tree">The tree.</param>
    /// <param name="from">The first key, inclusive; empty: from the beginning.</param>
    /// <param name="to">The end, exclusive; empty: to the end.</param>
    /// <param name="cancellationToken">Ends it between two steps.</param>
    /// <returns>How many keys were removed.</returns>
    /// <exception cref="ArgumentOutOfRangeException">A bound is more than one byte longer than a key may be.</exception>
    /// <exception cref="KvTreeNotFoundException">The tree was dropped.</exception>
    /// <exception cref="KvStoreFailedException">The store has stopped. Keys from the beginning of the range on may be removed.</exception>
    public Task<long> DeleteRangeAsync(
        KvTree tree, ReadOnlySpan<byte> from = default, ReadOnlySpan<byte> to = default, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(tree);
        ThrowIfDisposed();
        tree.ThrowUnlessOf(this, nameof(tree));
        tree.ThrowIfDropped();
        return DeleteRangeAsync(TreeKey.StartBound(tree.Number, from), TreeKey.EndBound(tree.Number, to), cancellationToken);
    }

    /// <summary>
    /// Removes the set of a key with all its members. It takes as long as the set has pages of branches, not members. A set of more than some megabytes is
    /// removed from its first member on, in steps that are atomic and durable each, so that others' writes do not wait for all of it. Together with other
    /// operations, or all at once: <see cref="KvBatch.SetDelete"/>.
    /// </summary>
    /// <param name="tree">The tree.</param>
    /// <param name="key">The key.</param>
    /// <param name="cancellationToken">Ends it between two steps.</param>
    /// <returns>How many members were removed.</returns>
    /// <exception cref="ArgumentOutOfRangeException">The key is empty or too long.</exception>
    /// <exception cref="KvTreeNotFoundException">The tree was dropped.</exception>
    /// <exception cref="KvStoreFailedException">The store has stopped. Members from the first one on may be removed.</exception>
    public Task<long> DeleteSetAsync(KvTree tree, ReadOnlySpan<byte> key, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(tree);
        ThrowIfDisposed();
        tree.ThrowUnlessOf(this, nameof(tree));
        tree.ThrowIfDropped();
        return DeleteSetsAsync([TreeKey.WriteWhole(stackalloc byte[TreeKey.BytesMax], tree.Number, key).ToArray()], cancellationToken);
    }

    /// <summary>A snapshot of everything that was answered so far. The caller disposes of it.</summary>
    /// <exception cref="KvSnapshotLimitException">Too many are open, or those that have ended hold too much memory.</exception>
    /// <exception cref="KvStoreFailedException">The store has stopped.</exception>
    public KvSnapshot OpenSnapshot()
    {
        ThrowIfDisposed();
        if (!_engine.Store.Pages.HasRoomForSnapshots)
        {
            throw new KvSnapshotLimitException(
                $"No snapshot was opened, because snapshots hold {_engine.Store.Pages.HeldScratchBytes >> 20} MiB of memory, which they may not. "
                + "Dispose of those that have ended.");
        }
        try
        {
            return new KvSnapshot(this, _engine.OpenSnapshot());
        }
        catch (Exception failure) when (StoreErrors.TryTranslate(failure, out var translated))
        {
            throw translated;
        }
    }

    /// <summary>
    /// Writes the changed pages of everything that was answered so far into the data file, so that an open has nothing of it to replay. The store does that by
    /// itself; this is for a program that wants it at a certain time.
    /// </summary>
    /// <param name="cancellationToken">Ends the wait, not the checkpoint.</param>
    /// <exception cref="KvStoreDiskException">The disk is full. Nothing is lost.</exception>
    /// <exception cref="KvStoreFailedException">The store has stopped.</exception>
    /// <exception cref="OperationCanceledException">The token was cancelled.</exception>
    public async Task CheckpointAsync(CancellationToken cancellationToken = default)
    {
        ThrowIfDisposed();
        cancellationToken.ThrowIfCancellationRequested();
        await UntilDisposedAsync(
            either => _engine.Store.Checkpoints.RequestAsync().WaitAsync(either),
            "The store was disposed of during the checkpoint.", cancellationToken).ConfigureAwait(false);
    }

    /// <summary>
    /// Writes a backup to a stream: a checkpoint with everything that was answered before the call. Reads and writes go on meanwhile; the data file grows by
    /// what they change. One backup is made at a time, and others wait for it.
    /// </summary>
    /// <param name="destination">Is written from its position on, and flushed, but not closed.</param>
    /// <param name="cancellationToken">Ends the backup.</param>
    /// <returns>The etag of the newest change in the backup.</returns>
    /// <exception cref="KvStoreDamagedException">A page on the disk is not what was written. The store stops.</exception>
    /// <inheritdoc cref="CheckpointAsync" path="/exception"/>
    public async Task<Etag> BackupAsync(Stream destination, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(destination);
        ThrowIfDisposed();
        using var turn = await _backups.TakeAsync(cancellationToken).ConfigureAwait(false);
        return await UntilDisposedAsync(
            either => StoreBackup.WriteAsync(_engine, destination, either),
            "The store was disposed of during the backup, which is incomplete.", cancellationToken).ConfigureAwait(false);
    }

    /// <summary>
    /// Closes the store. Batches that were passed to <see cref="WriteAsync"/> before are answered; a backup under way ends. If the journal has much that no
    /// checkpoint covers, one is written. Waits for open snapshots to be disposed of, for ten seconds at most; from the beginning on they throw. Then another
    /// process can open the directory.
    /// </summary>
    public ValueTask DisposeAsync()
    {
        _isDisposed = true;
        return new ValueTask(_disposal.Value);
    }

    /// <exception cref="ObjectDisposedException">The store was disposed of.</exception>
    internal void ThrowIfDisposed() => ObjectDisposedException.ThrowIf(_isDisposed, this);

    /// <summary>Removes stored keys in a range, step by step.</summary>
    internal Task<long> DeleteRangeAsync(byte[] from, byte[] to, CancellationToken cancellationToken) =>
        from.AsSpan().SequenceCompareTo(to) < 0 ? DeleteInStepsAsync(request => request.DeleteRange(from, to), cancellationToken) : Task.FromResult(0L);

    /// <summary>Removes the sets of stored keys: one of any size, step by step, or several that are small.</summary>
    internal Task<long> DeleteSetsAsync(IReadOnlyList<byte[]> keys, CancellationToken cancellationToken)
    {
        return DeleteInStepsAsync(Fill, cancellationToken);

        void Fill(WriteRequest request)
        {
            foreach (var key in keys)
                request.SetDelete(key);
        }
    }

    internal ReadSnapshot OpenEngineSnapshot() => _engine.OpenSnapshot();

    /// <summary>Has a request applied. Answers that the request was not applied, other than a failed condition, are exceptions.</summary>
    /// <param name="request">The request.</param>
    /// <param name="cancellationToken">Gives the request up while it waits.</param>
    /// <param name="batch">The batch that it was taken from; null if there is none.</param>
    [AsyncMethodBuilder(typeof(PoolingAsyncValueTaskMethodBuilder<>))]
    internal async ValueTask<WriteResult> SubmitAsync(WriteRequest request, CancellationToken cancellationToken, KvBatch? batch = null)
    {
        var (completion, change) = (request.Completion, new QueuedChange(request, request.Life));
        try
        {
            if (_line.IsTaken || !TrySubmit(request, batch))
                await WaitForRoomAsync(request, batch, cancellationToken).ConfigureAwait(false);
        }
        catch (Exception refusal) when (refusal is OperationCanceledException or KvTreeNotFoundException)
        {
            request.Return();
            throw;
        }
        using var giveUp = change.GiveUpWith(cancellationToken);
        return Evaluated(await completion.ConfigureAwait(false), cancellationToken);
    }

    private WriteResult Evaluated(WriteResult result, CancellationToken cancellationToken) =>
        result.Outcome is WriteOutcome.Applied or WriteOutcome.ConditionFailed ? result : throw FailureOf(result.Outcome, cancellationToken);

    private bool TrySubmit(WriteRequest request, KvBatch? batch) =>
        batch?.TrySubmit(request, _engine.Store.Requests) ?? _engine.Store.Requests.TrySubmit(request);

    /// <summary>Submits a request when the queue has room for it, after those that have waited for longer.</summary>
    private async Task WaitForRoomAsync(WriteRequest request, KvBatch? batch, CancellationToken cancellationToken)
    {
        using var place = _line.Enter();
        await place.Turn.WaitAsync(cancellationToken).ConfigureAwait(false);
        for (var pause = FullQueuePauseFirst; !TrySubmit(request, batch); pause = Shorter(2 * pause, FullQueuePauseMax))
            await Task.Delay(pause, _time, cancellationToken).ConfigureAwait(false);
    }

    /// <summary>The same for a thread that stands still. No wait needs another thread of the pool.</summary>
    private void WaitForRoom(WriteRequest request, KvBatch batch, CancellationToken cancellationToken)
    {
        using var place = _line.Enter();
        place.Turn.Wait(cancellationToken);
        for (var pause = FullQueuePauseFirst; !TrySubmit(request, batch); pause = Shorter(2 * pause, FullQueuePauseMax))
            Task.Delay(pause, _engine.Clock, cancellationToken).Wait(cancellationToken);
    }

    /// <summary>Repeats a request that deletes until nothing is left of what it deletes, and returns how much there was.</summary>
    private async Task<long> DeleteInStepsAsync(Action<WriteRequest> fill, CancellationToken cancellationToken)
    {
        var deleted = 0L;
        for (var isPartial = true; isPartial;)
        {
            cancellationToken.ThrowIfCancellationRequested();
            var request = WriteRequest.Rent();
            fill(request);
            var result = await SubmitAsync(request, cancellationToken).ConfigureAwait(false);
            (deleted, isPartial) = (deleted + result.Deleted, result.IsPartial);
        }
        return deleted;
    }

    private static StoreHome TakeForRestore(string directory)
    {
        try
        {
            return StoreHome.TakeForRestore(directory);
        }
        catch (Exception failure) when (StoreErrors.TryTranslateOpen(failure, out var translated))
        {
            throw translated;
        }
    }

    private static TimeSpan Shorter(TimeSpan one, TimeSpan other) => one < other ? one : other;

    /// <summary>Waits for work that its caller cancels, and the disposal of the store too.</summary>
    /// <param name="work">Begins the work, which ends early by the token.</param>
    /// <param name="disposed">What is thrown when the disposal has ended it.</param>
    /// <param name="caller">The caller's token, of which a cancelled call tells.</param>
    private async Task<T> UntilDisposedAsync<T>(Func<CancellationToken, Task<T>> work, string disposed, CancellationToken caller)
    {
        using var either = CancellationTokenSource.CreateLinkedTokenSource(caller, _ending.Token);
        try
        {
            return await work(either.Token).ConfigureAwait(false);
        }
        catch (OperationCanceledException cancelled) when (caller.IsCancellationRequested)
        {
            throw new OperationCanceledException(cancelled.Message, cancelled, caller);
        }
        catch (OperationCanceledException) when (_isDisposed)
        {
            throw new ObjectDisposedException(nameof(KvStore), disposed);
        }
        catch (Exception failure) when (StoreErrors.TryTranslate(failure, out var translated))
        {
            throw translated;
        }
    }

    private Exception FailureOf(WriteOutcome outcome, CancellationToken cancellationToken)
    {
        var first = _engine.Store.Life.Failure;
        return outcome switch
        {
            WriteOutcome.GivenUp => new OperationCanceledException("The batch was taken back before its turn came. Nothing was changed.", cancellationToken),
            WriteOutcome.DiskFull =>
                new KvStoreDiskException("The disk is full, so the batch was not applied. Batches without puts still are; make room.", isFull: true),
            WriteOutcome.NoRoomYet => new KvStoreDiskException(
                "The disk is full, and there is no room even for a batch without puts before the next checkpoint. It was not applied; "
                + "try again soon, or make room.", isFull: true),
            WriteOutcome.RangeTooLarge => new KvSetTooLargeException(
                "The batch was not applied, because it deletes sets with more members than can be removed at once. "
                + $"Remove them with {nameof(DeleteSetAsync)}."),
            WriteOutcome.OutcomeUnknown => new KvStoreFailedException(
                $"The store {(first is null ? "was closed" : $"has stopped ({first.Message})")} while the batch was on its way to the disk. "
                + "Whether it was applied shows after the next open.",
                isOutcomeUnknown: true, first),
            _ when first is null => new ObjectDisposedException(nameof(KvStore), "The store was disposed of. Nothing was changed."),
            _ => new KvStoreFailedException(
                $"The store has stopped: {first.Message} Nothing was changed; dispose of the store and open it again.", isOutcomeUnknown: false, first),
        };
    }

    /// <summary>
    /// Waits until everything in the journal is committed and visible, and every request from before is answered. A request that changes nothing is answered
    /// after those before it.
    /// </summary>
    private async Task SettleAsync() => await SubmitAsync(WriteRequest.Rent(), CancellationToken.None).ConfigureAwait(false);

    private async Task StartAsync()
    {
        await SettleAsync().ConfigureAwait(false);
        await _trees.LoadAsync().ConfigureAwait(false);
    }

    private async Task EndAsync()
    {
        await _ending.CancelAsync().ConfigureAwait(false);
        await _backups.EndAsync().ConfigureAwait(false);
        await _trees.EndAsync().ConfigureAwait(false);
        try
        {
            await SettleAsync().ConfigureAwait(false);
            if (_engine.Store.Statistics.HasMuchToReplay)
                await _engine.Store.Checkpoints.RequestAsync().ConfigureAwait(false);
        }
        catch (Exception failure) when (failure is KvStoreException or StoreStoppedException or StorageIoException)
        {
            // The callers that wait for a write get the failure. The next open replays what the journal has.
        }
        await _engine.Store.CloseAsync().ConfigureAwait(false);
        _engine.Dispose();
        _home.Dispose();
    }
}
