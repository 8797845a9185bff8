using Grpc.Core;
using KvCluster.Node.Api.Calls;
using KvCluster.Node.Api.Errors;
using KvCluster.Node.Api.Reads;
using KvCluster.Node.Hosting;
using KvCluster.Node.Watching;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;
using KvCluster.Wire;

namespace KvCluster.Node.Api.Watches;

/// <summary>
/// Watches at a node: the part of the range in one shard, from any replica. A stream waits without a thread and holds a message only while that is written. Any
/// thread.
/// </summary>
/// <param name="lookup">Finds the replica.</param>
/// <param name="hubs">Give the events.</param>
/// <param name="threads">Read the entries that a watch begins with.</param>
/// <param name="memory">The budget of requests and messages.</param>
/// <param name="clock">Tells when a snapshot was opened.</param>
/// <param name="kept">Knows their maximum age.</param>
internal sealed class KvWatches(ShardLookup lookup, WatchHubs hubs, ReadThreads threads, CallMemory memory, TimeProvider clock, KeptSnapshots kept)
{
    /// <summary>How long a caller that is far behind may be told nothing.</summary>
    private static readonly TimeSpan BookmarkAge = TimeSpan.FromMilliseconds(500);

    /// <summary>How long a replica that is behind the position asked for may take. Callers give up a stream that is silent for three seconds.</summary>
    private static readonly TimeSpan CatchUpTime = TimeSpan.FromSeconds(2);

    /// <summary>
    /// How long a follower may hear nothing from a leader until its watchers are sent elsewhere. Leaders of quiescent shards send something every five seconds.
    /// </summary>
    private static readonly TimeSpan SilenceMax = TimeSpan.FromSeconds(15);

    /// <summary>How often a stream looks for memory for its message. It only lags meanwhile.</summary>
    private static readonly TimeSpan RoomPause = TimeSpan.FromMilliseconds(50);

    /// <summary>How often it is looked whether a snapshot is too old whose reader is waited for.</summary>
    private static readonly TimeSpan SnapshotLook = TimeSpan.FromMilliseconds(250);

    private readonly MessageRoom _room = new(memory.Replies);

    /// <summary>Runs a watch and returns the request's buffer.</summary>
    /// <returns>Why it has ended.</returns>
    /// <exception cref="RpcException">The caller is gone.</exception>
    public async Task<ApiError> RunAsync(MessageBytes message, IServerStreamWriter<MessageBytes> responses, CancellationToken cancellationToken)
    {
        var requestBytes = message.Count;
        if (!memory.Requests.TryTake(requestBytes, requestBytes <= ByteBudget.SmallBytes))
            return ApiErrors.RequestsWait;
        try
        {
            var refusal = WatchQuery.TryRead(message.Written, out var query);
            message.Return();
            if (refusal is not null)
                return refusal;
            if (lookup.FindForScan(reverse: false, query.Range.Lower.Span, query.Range.Upper.Span, isForLeader: false, out refusal) is not { } shard)
                return refusal;
            return await WatchAsync(shard, query, responses, cancellationToken).ConfigureAwait(false);
        }
        catch (Exception failure) when (ApiErrors.Of(failure) is { } refusal)
        {
            // A server that stops cancels its calls.
            return hubs.IsStopping ? ApiErrors.Stopping : refusal;
        }
        finally
        {
            memory.Requests.GiveBack(requestBytes);
        }
    }

    /// <summary>Runs a watch at a replica that was found for it.</summary>
    /// <returns>Why it has ended.</returns>
    public async Task<ApiError> WatchAsync(
        HostedShard shard, WatchQuery query, IServerStreamWriter<MessageBytes> responses, CancellationToken cancellationToken)
    {
        var replica = shard.Replica!;
        var after = query.AfterIn(shard.Shard);
        var begun = after is null && query.Initial ? query.EntriesSentIn(shard.Shard) : null;
        if ((after?.Lineage ?? begun?.Lineage) is { } lineage and not 0 && lineage != shard.InLineage.Lineage)
            return ApiErrors.LineageChanged(shard.Shard, after?.Etag ?? begun!.Value.Sent.Etag);
        var snapshot = query.Initial && after is null && begun is null ? replica.Reads.OpenSnapshot() : (ReadSnapshot?)null;
        Watcher watcher;
        try
        {
            // The watcher joins before anything is sent, so that the journal is kept from its position on.
            watcher = hubs.Join(replica, query.Range, after?.Etag ?? begun?.Sent.Etag ?? snapshot?.Etag, query.WithSets, query.WithPrevious);
        }
        finally
        {
            snapshot?.Dispose();
        }
        try
        {
            await using var gone = cancellationToken.UnsafeRegister(static state => ((Watcher)state!).Hub.Interrupt((Watcher)state), watcher)
                .ConfigureAwait(false);
            var output = new Output(shard, query, watcher, responses, cancellationToken) { IsVerified = after is null && begun is null };
            ApiError? refusal = null;
            if (query.Initial && after is null && begun?.Sent.IsComplete != true)
                refusal = await SendEntriesAsync(output, begun?.Sent.Through ?? default).ConfigureAwait(false);
            else if (watcher.State != WatchState.Behind)
                refusal = await SendAsync(output, WatchMessages.Begin(shard.InLineage, watcher.Taken)).ConfigureAwait(false);
            return refusal ?? await SendChangesAsync(output).ConfigureAwait(false);
        }
        finally
        {
            hubs.Leave(replica, watcher);
        }
    }

    private async Task<ApiError> SendChangesAsync(Output output)
    {
        var (watcher, runs) = (output.Watcher, new List<WatchRun>());
        while (true)
        {
            output.Cancellation.ThrowIfCancellationRequested();
            ApiError? end = null;
            switch (watcher.Hub.Next(watcher, WatchLimits.MessageBytes, runs, out var position))
            {
                case WatchStep.Send when runs.Count == 0 && IsCutOff(output.Shard):
                    end = ApiErrors.LeaderSilent(output.Shard.Route, lookup.Node);
                    break;
                case WatchStep.Send:
                    end = await SendAsync(output, position, runs).ConfigureAwait(false);
                    break;
                case WatchStep.CatchUp:
                    end = await CatchUpAsync(output).ConfigureAwait(false);
                    break;
                case WatchStep.Ended:
                    end = EndOf(output.Shard);
                    break;
                default:
                    await watcher.Hub.WaitAsync(watcher).ConfigureAwait(false);
                    break;
            }
            if (end is not null)
                return end;
        }
    }

    // The events that the hub has for a watcher, unless there is no room. Then they stay with the hub, which forgets them when it has newer ones.
    private async Task<ApiError?> SendAsync(Output output, Etag position, List<WatchRun> runs)
    {
        var (watcher, query, shard) = (output.Watcher, output.Query, output.Shard.InLineage);
        var bytes = WatchMessages.SizeOf(shard, runs, query);
        if (!_room.TryTake(bytes, out var held))
        {
            runs.Clear();
            await Task.Delay(RoomPause, clock, output.Cancellation).ConfigureAwait(false);
            return null;
        }
        try
        {
            if (!watcher.Hub.TryTake(watcher, runs, position))
                return null;
            return await WriteAsync(output, Encode(output, position, runs, bytes, isOfJournal: false)).ConfigureAwait(false);
        }
        finally
        {
            held.GiveBackAfter(output.Writing);
        }
    }

    // Reads a page of the journal for a watcher that is behind, and sends what it has of it. Without room nothing is read, or read again later.
    private async Task<ApiError?> CatchUpAsync(Output output, SentBeginning? beginning = null, EntriesRead? entries = null)
    {
        var (hub, watcher) = (output.Watcher.Hub, output.Watcher);
        var (before, page) = (watcher.Taken, (CaughtUp?)null);
        MessageRoom.Held held = default, more = default;
        try
        {
            await hubs.CatchUps.WaitAsync(output.Cancellation).ConfigureAwait(false);
            try
            {
                // Room is not waited for here, nor held while anything else is waited for: there are few places, and others need the room.
                if (_room.TryTake(Math.Max(output.PageBytes, WatchLimits.PageBytes), out held))
                {
                    // SetResult runs the rest of this method at once, in the step of the pool that has read the journal.
                    var read = new TaskCompletionSource<CaughtUp>();
                    hub.CatchUp(watcher, read.SetResult, beginning);
                    page = await read.Task.WaitAsync(output.Cancellation).ConfigureAwait(false);
                    output.PageBytes = page.State == TailState.Read ? WatchMessages.SizeOf(output.Shard.InLineage, page.Runs, output.Query) : 0;
                    if (output.PageBytes > held.Bytes && !_room.TryTake(output.PageBytes - held.Bytes, out more))
                    {
                        hub.Return(watcher, before);
                        page = null;
                    }
                }
            }
            finally
            {
                hubs.CatchUps.Release();
            }
            if (page is { State: TailState.Read })
                return await SendPageAsync(output, page, beginning, entries).ConfigureAwait(false);
        }
        finally
        {
            held.GiveBackAfter(output.Writing);
            more.GiveBackAfter(output.Writing);
        }
        switch (page?.State)
        {
            case null:
                entries?.EndIfTooOld();
                await Task.Delay(RoomPause, clock, output.Cancellation).ConfigureAwait(false);
                return null;
            case TailState.Compacted:
                return ApiErrors.Compacted(output.Shard.Shard, before, page.Oldest);
            case TailState.Foreign:
                return ApiErrors.LineageChanged(output.Shard.Shard, before);
            case TailState.Ahead:
                return await AwaitAsync(output, before).ConfigureAwait(false);
            default:
                // Another store may take the place of this one. The hub looks again soon.
                await hub.WaitAsync(watcher).ConfigureAwait(false);
                return null;
        }
    }

    // In messages of about the usual size, each with the position of its last record. A caller that is far behind is also told how far it has come.
    private async Task<ApiError?> SendPageAsync(Output output, CaughtUp page, SentBeginning? beginning, EntriesRead? entries)
    {
        var runs = new List<WatchRun>();
        var bytes = 0L;
        foreach (var run in page.Runs)
        {
            if (runs.Count == 0 || runs[^1].Batch != run.Batch)
            {
                if (runs.Count > 0 && bytes + run.Batch.Bytes > WatchLimits.MessageBytes)
                {
                    if (await WriteAsync(output, EncodePage(output, runs[^1].Batch.Etag, runs, beginning), entries).ConfigureAwait(false) is { } end)
                        return end;
                    runs.Clear();
                    bytes = 0;
                }
                bytes += run.Batch.Bytes;
            }
            runs.Add(run);
        }
        if (runs.Count == 0 && output.IsVerified && clock.GetElapsedTime(output.WrittenTimestamp) < BookmarkAge)
            return null;
        output.IsVerified = true;
        return await WriteAsync(output, EncodePage(output, page.Position, runs, beginning), entries).ConfigureAwait(false);
    }

    private static MessageBytes EncodePage(Output output, Etag position, List<WatchRun> runs, SentBeginning? beginning) => beginning is { } sent
        ? WatchMessages.EncodeInitial(output.Shard.InLineage, new EntriesSent(position, sent.Through), runs, output.Query)
        : Encode(output, position, runs, WatchMessages.SizeOf(output.Shard.InLineage, runs, output.Query), isOfJournal: true);

    // A large message is encoded once for all watchers that send its events.
    private static MessageBytes Encode(Output output, Etag position, List<WatchRun> runs, int bytes, bool isOfJournal)
    {
        var (shard, query) = (output.Shard.InLineage, output.Query);
        return bytes < WatchLimits.SharedMessageBytesMin
            ? WatchMessages.Encode(shard, position, runs, query)
            : output.Watcher.Hub.Share(
                new WatchPart(runs, position, query.Options, isOfJournal), bytes, () => WatchMessages.Encode(shard, position, runs, query));
    }

    /// <summary>
    /// The position is after everything that this replica has applied. Either it lags, and catches up, or the position is of another history, which its leader
    /// can tell.
    /// </summary>
    private async Task<ApiError?> AwaitAsync(Output output, Etag after)
    {
        var replica = output.Shard.Replica!;
        var committed = replica.IsServing
            ? await replica.Reads.ConfirmAsync(output.Cancellation).ConfigureAwait(false)
            : await replica.Reads.AskLeaderAsync(output.Cancellation).ConfigureAwait(false);
        if (committed is not { } known)
            return ApiErrors.LeaderSilent(output.Shard.Route, lookup.Node);
        if (after > known)
            return ApiErrors.LineageChanged(output.Shard.Shard, after);
        return await replica.Reads.WaitForAppliedAsync(after, CatchUpTime, output.Cancellation).ConfigureAwait(false) ? null
            : ApiErrors.ReplicaBehind(output.Shard, after, lookup.Node);
    }

    // Whether this replica may be cut off, so that changes at other replicas would not be seen here.
    private static bool IsCutOff(HostedShard shard) =>
        !shard.Replica!.IsServing && (shard.Replica.Reads.AgeUs is not { } age || age > (ulong)SilenceMax.TotalMicroseconds);

    private ApiError EndOf(HostedShard shard)
    {
        var route = shard.Route;
        if (shard.Replica!.Failure is { } failure)
            return ApiErrors.ReplicaFailed(route, failure.Message);
        return route.Nodes.Contains(lookup.Node.Value) ? ApiErrors.Stopping : ApiErrors.WrongShard(route);
    }

    /// <summary>
    /// Sends the entries that the watch begins with. They take longer than a snapshot is kept, or begin behind what another stream has sent: then they go on in
    /// a newer snapshot, but first the keys sent so far are brought to its state.
    /// </summary>
    /// <param name="output">The stream.</param>
    /// <param name="through">The last key sent; empty: none was. The watcher's position is the state that the keys sent are of.</param>
    private async Task<ApiError?> SendEntriesAsync(Output output, ReadOnlyMemory<byte> through)
    {
        var (replica, watcher) = (output.Shard.Replica!, output.Watcher);
        output.IsVerified = true;
        while (true)
        {
            // Most changes of the keys sent so far are sent before the snapshot is opened, because that may take long.
            if (!through.IsEmpty && await SendChangesOfSentAsync(output, replica.Store.Tail.Committed, through, entries: null).ConfigureAwait(false) is { } end)
                return end;
            using var read = new EntriesRead(replica.Reads.OpenSnapshot(), output.Query, through, kept, clock);
            if (through.IsEmpty)
                watcher.Hub.Skip(watcher, read.Etag);
            else if (await SendChangesOfSentAsync(output, read.Etag, through, read).ConfigureAwait(false) is { } ended)
                return ended;
            while (!read.IsOver)
            {
                if (watcher.Hub.HasEnded(watcher))
                    return EndOf(output.Shard);
                if (await SendEntriesAsync(output, read).ConfigureAwait(false) is { } failed)
                    return failed;
                if (read.Entries.AreComplete)
                    return null;
                read.EndIfTooOld();
            }
            through = read.Entries.Through;
        }
    }

    private async Task<ApiError?> SendEntriesAsync(Output output, EntriesRead read)
    {
        var entries = read.Entries;
        var bytesMax = Math.Max(WatchLimits.MessageBytes, entries.NextBytes);
        MessageRoom.Held held;
        while (!_room.TryTake(bytesMax + InitialEntries.EndBytes, out held))
        {
            await Task.Delay(RoomPause, clock, output.Cancellation).ConfigureAwait(false);
            read.EndIfTooOld();
            if (read.IsOver)
                return null;
        }
        try
        {
            var message = MessageBytes.Rent();
            var place = await threads.EnterAsync();
            try
            {
                entries.Fill(message, bytesMax);
            }
            finally
            {
                await place.LeaveAsync();
            }
            WatchMessages.MarkInitial(message, output.Shard.InLineage, new EntriesSent(read.Etag, entries.Through, entries.AreComplete));
            return await WriteAsync(output, message, read).ConfigureAwait(false);
        }
        finally
        {
            held.GiveBackAfter(output.Writing);
        }
    }

    // At least once, which tells whether the position is one of this history and the journal reaches back to it. Not to its end if the snapshot that this is
    // for ends before.
    private async Task<ApiError?> SendChangesOfSentAsync(Output output, Etag until, ReadOnlyMemory<byte> through, EntriesRead? entries)
    {
        var keys = new WatchedRange(output.Query.Range.Lower, Behind(through));
        do
        {
            if (output.Watcher.Hub.HasEnded(output.Watcher))
                return EndOf(output.Shard);
            output.Cancellation.ThrowIfCancellationRequested();
            if (await CatchUpAsync(output, new SentBeginning(keys, through, until), entries).ConfigureAwait(false) is { } end)
                return end;
        }
        while (output.Watcher.Taken < until && entries is not { IsOver: true });
        return null;
    }

    private static ReadOnlySpan<byte> LowerBehind(in WatchedRange range, ReadOnlyMemory<byte> through) => through.IsEmpty ? range.Lower.Span : Behind(through);

    // Returns the least key that is greater than this one.
    private static byte[] Behind(ReadOnlyMemory<byte> key) => [.. key.Span, 0];

    // Sends a message for which the caller has taken no room. It is taken here, and given back after the write.
    private async Task<ApiError?> SendAsync(Output output, MessageBytes message)
    {
        var held = await _room.TakeAsync(message.Count, clock, output.Cancellation).ConfigureAwait(false);
        try
        {
            return await WriteAsync(output, message).ConfigureAwait(false);
        }
        finally
        {
            held.GiveBackAfter(output.Writing);
        }
    }

    // Sends a message for which there is room. The snapshot in which entries are read is closed in time even if the caller does not read.
    private async Task<ApiError?> WriteAsync(Output output, MessageBytes message, EntriesRead? entries = null)
    {
        if (message.Count > WatchLimits.AnnouncedMessageBytesMin
            && !await StalledWrite.EndsAsync(output.Responses.WriteAsync(WatchMessages.Announce(message.Count)), memory.Replies, output.Cancellation, clock)
                .ConfigureAwait(false))
        {
            message.Return();
            return ApiErrors.NotRead;
        }
        output.Writing = output.Responses.WriteAsync(message);
        var writing = StalledWrite.EndsAsync(output.Writing, memory.Replies, output.Cancellation, clock).AsTask();
        while (entries is { IsOver: false } && !writing.IsCompleted)
        {
            await ((Task)writing).WaitAsync(SnapshotLook, clock).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
            entries.EndIfTooOld();
        }
        if (!await writing.ConfigureAwait(false))
            return ApiErrors.NotRead;
        output.WrittenTimestamp = clock.GetTimestamp();
        return null;
    }

    /// <summary>
    /// The entries of one snapshot. It ends when it is too old, also while the reader is waited for, because writers keep the pages that it sees.
    /// </summary>
    private sealed class EntriesRead : IDisposable
    {
        private readonly ReadSnapshot _snapshot;
        private readonly Cursor _cursor;
        private readonly KeptSnapshots _kept;
        private readonly long _opened;

        public EntriesRead(ReadSnapshot snapshot, WatchQuery query, ReadOnlyMemory<byte> through, KeptSnapshots kept, TimeProvider clock)
        {
            (_snapshot, _kept, _opened, Etag) = (snapshot, kept, clock.GetTimestamp(), snapshot.Etag);
            try
            {
                _cursor = snapshot.Cursor(TreeId.Kv, LowerBehind(query.Range, through), query.Range.Upper.Span);
            }
            catch
            {
                snapshot.Dispose();
                throw;
            }
            Entries = new InitialEntries(_cursor, query, through);
        }

        public Etag Etag { get; }

        public InitialEntries Entries { get; }

        /// <summary>Nothing more can be read.</summary>
        public bool IsOver { get; private set; }

        public void EndIfTooOld()
        {
            if (!IsOver && _kept.IsTooOld(_snapshot, _opened))
                Dispose();
        }

        public void Dispose()
        {
            if (IsOver)
                return;
            IsOver = true;
            _cursor.Dispose();
            _snapshot.Dispose();
        }
    }

    /// <summary>A caller's stream.</summary>
    private sealed class Output(
        HostedShard shard, WatchQuery query, Watcher watcher, IServerStreamWriter<MessageBytes> responses, CancellationToken cancellation)
    {
        public HostedShard Shard => shard;

        public WatchQuery Query => query;

        public Watcher Watcher => watcher;

        public IServerStreamWriter<MessageBytes> Responses => responses;

        public CancellationToken Cancellation => cancellation;

        /// <summary>The write of the last message, which may go on when the stream has ended because it is not read. Until then the message is held.</summary>
        public Task Writing { get; set; } = Task.CompletedTask;

        /// <summary>When a message was last written, as a timestamp of the clock.</summary>
        public long WrittenTimestamp { get; set; }

        /// <summary>Whether the caller knows that its position is one of this history; it is told so by the first message.</summary>
        public bool IsVerified { get; set; }

        /// <summary>What the last page of the journal took for which there was no room.</summary>
        public long PageBytes { get; set; }
    }
}
