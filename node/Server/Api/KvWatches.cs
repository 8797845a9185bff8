using Grpc.Core;
using KvCluster.Node.Hosting;
using KvCluster.Node.Watching;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Node.Api;

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
    /// <summary>About how many bytes of events are in one message; those of one record are not divided. Like a page of a scan.</summary>
    private const int MessageBytesMin = 128 << 10;

    /// <summary>How long a replica that is behind the position asked for may take. Callers give up a stream that is silent for three seconds.</summary>
    private static readonly TimeSpan CatchUpTime = TimeSpan.FromSeconds(2);

    /// <summary>
    /// How long a follower may hear nothing from a leader until its watchers are sent elsewhere. Leaders of idle shards send something every five seconds.
    /// </summary>
    private static readonly TimeSpan SilenceMax = TimeSpan.FromSeconds(15);

    /// <summary>How often a stream looks for memory for its message. It only lags meanwhile.</summary>
    private static readonly TimeSpan RoomPause = TimeSpan.FromMilliseconds(50);

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

    private async Task<ApiError> WatchAsync(HostedShard shard, WatchQuery query, IServerStreamWriter<MessageBytes> responses, CancellationToken cancellationToken)
    {
        var replica = shard.Replica!;
        var after = query.AfterIn(shard.Shard);
        if (after is { Lineage: not 0 } foreign && foreign.Lineage != shard.InLineage.Lineage)
            return ApiErrors.LineageChanged(shard.Shard, foreign.Etag);
        var snapshot = after is null && query.Initial ? replica.Reads.OpenSnapshot() : (ReadSnapshot?)null;
        try
        {
            // It joins before the snapshot is sent, so that the journal after it is kept.
            var watcher = hubs.Join(replica, query.Range, after?.Etag ?? snapshot?.Etag, query.WithSets, query.WithPrevious);
            try
            {
                await using var gone = cancellationToken.UnsafeRegister(static state => ((Watcher)state!).Hub.Interrupt((Watcher)state), watcher).ConfigureAwait(false);
                var output = new Output(shard, query, responses, cancellationToken);
                var refusal = await BeginAsync(output, watcher, snapshot).ConfigureAwait(false);
                snapshot?.Dispose();
                return refusal ?? await SendAsync(output, watcher, isVerified: after is null).ConfigureAwait(false);
            }
            finally
            {
                hubs.Leave(replica, watcher);
            }
        }
        finally
        {
            snapshot?.Dispose();
        }
    }

    // Tells the caller where it begins.
    private async Task<ApiError?> BeginAsync(Output output, Watcher watcher, ReadSnapshot? snapshot)
    {
        if (snapshot is { } entries)
            return await SendEntriesAsync(output, entries).ConfigureAwait(false);
        return watcher.State == WatchState.Behind ? null : await WriteAsync(output, WatchMessages.Begin(output.Shard.InLineage, watcher.Taken)).ConfigureAwait(false);
    }

    private async Task<ApiError> SendAsync(Output output, Watcher watcher, bool isVerified)
    {
        var runs = new List<WatchRun>();
        while (true)
        {
            output.Cancellation.ThrowIfCancellationRequested();
            ApiError? end = null;
            switch (watcher.Hub.Next(watcher, MessageBytesMin, runs, out var position))
            {
                case WatchStep.Send when runs.Count == 0 && IsCutOff(output.Shard):
                    end = ApiErrors.LeaderSilent(output.Shard.Route, lookup.Node);
                    break;
                case WatchStep.Send:
                    end = await WriteAsync(output, WatchMessages.Encode(output.Shard.InLineage, position, runs, output.Query)).ConfigureAwait(false);
                    break;
                case WatchStep.CatchUp:
                    end = await CatchUpAsync(output, watcher, position, isVerified).ConfigureAwait(false);
                    isVerified |= end is null;
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

    // Reads a page of the journal for a watcher that is behind, and sends what it has of it.
    private async Task<ApiError?> CatchUpAsync(Output output, Watcher watcher, Etag before, bool isVerified)
    {
        CaughtUp page;
        List<MessageBytes> messages;
        await hubs.CatchUps.WaitAsync(output.Cancellation).ConfigureAwait(false);
        try
        {
            var read = new TaskCompletionSource<CaughtUp>(TaskCreationOptions.RunContinuationsAsynchronously);
            watcher.Hub.CatchUp(watcher, read.SetResult);
            page = await read.Task.WaitAsync(output.Cancellation).ConfigureAwait(false);
            messages = Divide(output, page, isVerified);
        }
        finally
        {
            hubs.CatchUps.Release();
        }
        switch (page.State)
        {
            case TailState.Compacted:
                return ApiErrors.Compacted(output.Shard.Shard, before, page.Oldest);
            case TailState.Foreign:
                return ApiErrors.LineageChanged(output.Shard.Shard, before);
            case TailState.Ahead:
                return await AwaitAsync(output, before).ConfigureAwait(false);
            case TailState.Stopped:
                // Another store may take the place of this one. The hub looks again soon.
                await watcher.Hub.WaitAsync(watcher).ConfigureAwait(false);
                return null;
            default:
                break;
        }
        for (var index = 0; index < messages.Count; index++)
        {
            if (await WriteAsync(output, messages[index]).ConfigureAwait(false) is not { } end)
                continue;
            foreach (var unsent in messages.Skip(index + 1))
                unsent.Return();
            return end;
        }
        return null;
    }

    // Messages of about the usual size, each with the position of its last record. A caller that is far behind is also told how far it has come.
    private List<MessageBytes> Divide(Output output, CaughtUp page, bool isVerified)
    {
        var messages = new List<MessageBytes>();
        if (page.State != TailState.Read)
            return messages;
        var runs = new List<WatchRun>();
        var bytes = 0L;
        for (var index = 0; index < page.Runs.Count; index++)
        {
            var run = page.Runs[index];
            if (runs.Count > 0 && runs[^1].Batch != run.Batch)
            {
                if (bytes + run.Batch.Bytes > MessageBytesMin)
                    Flush(runs[^1].Batch.Etag);
                bytes += run.Batch.Bytes;
            }
            else if (runs.Count == 0)
            {
                bytes = run.Batch.Bytes;
            }
            runs.Add(run);
        }
        var isDue = !isVerified || clock.GetElapsedTime(output.WrittenTimestamp) >= TimeSpan.FromMilliseconds(500);
        if (runs.Count > 0 || isDue)
            Flush(page.Position);
        return messages;

        void Flush(Etag position)
        {
            messages.Add(WatchMessages.Encode(output.Shard.InLineage, position, runs, output.Query));
            runs.Clear();
            bytes = 0;
        }
    }

    /// <summary>
    /// The position is after everything that this replica has applied. Either it lags, and catches up, or the position is of another history, which its leader can
    /// tell.
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
        return await replica.Reads.WaitForAppliedAsync(after, CatchUpTime, output.Cancellation).ConfigureAwait(false) ? null : ApiErrors.ReplicaBehind(output.Shard, after, lookup.Node);
    }

    // Whether changes elsewhere would not be seen here.
    private static bool IsCutOff(HostedShard shard) =>
        !shard.Replica!.IsServing && (shard.Replica.Reads.AgeUs is not { } age || age > (ulong)SilenceMax.TotalMicroseconds);

    private ApiError EndOf(HostedShard shard)
    {
        var route = shard.Route;
        if (shard.Replica!.Failure is { } failure)
            return ApiErrors.ReplicaFailed(route, failure.Message);
        return route.Nodes.Contains(lookup.Node.Value) ? ApiErrors.Stopping : ApiErrors.WrongShard(route);
    }

    // The entries that the watch begins with, in messages without a position, except the last one.
    private async Task<ApiError?> SendEntriesAsync(Output output, ReadSnapshot snapshot)
    {
        var opened = clock.GetTimestamp();
        using var cursor = snapshot.Cursor(TreeId.Kv, output.Query.Range.Lower.Span, output.Query.Range.Upper.Span);
        for (var more = true; more;)
        {
            var message = MessageBytes.Rent();
            var place = await threads.EnterAsync();
            try
            {
                more = FillEntries(message, cursor, output.Query);
            }
            finally
            {
                await place.LeaveAsync();
            }
            if (!more)
            {
                var last = WatchMessages.Begin(output.Shard.InLineage, snapshot.Etag);
                message.Append(last.Written);
                last.Return();
            }
            WatchMessages.MarkInitial(message);
            if (await WriteAsync(output, message).ConfigureAwait(false) is { } end)
                return end;
            if (more && kept.IsTooOld(snapshot, opened))
                return ApiErrors.SnapshotTooOld;
        }
        return null;
    }

    private static bool FillEntries(MessageBytes message, Cursor cursor, WatchQuery query)
    {
        while (message.Count < MessageBytesMin)
        {
            if (!cursor.MoveNext())
                return false;
            var value = KvValue.Read(cursor.Value, out var etag);
            // An entry is copied once more than in a scan, which is rare.
            var entry = new WatchEvent { Kind = EventKind.Put, Reason = EventReason.User, Etag = etag, Key = cursor.Key.ToArray(), Value = query.KeysOnly ? default : value.ToArray() };
            WatchMessages.Append(message, entry, query);
        }
        return true;
    }

    private async Task<ApiError?> WriteAsync(Output output, MessageBytes message)
    {
        var bytes = message.Count;
        while (!memory.Replies.TryTake(bytes, isSmall: bytes <= ByteBudget.SmallBytes))
            await Task.Delay(RoomPause, clock, output.Cancellation).ConfigureAwait(false);
        try
        {
            if (!await StalledWrite.EndsAsync(output.Responses.WriteAsync(message), memory.Replies).ConfigureAwait(false))
                return ApiErrors.NotRead;
            output.WrittenTimestamp = clock.GetTimestamp();
            return null;
        }
        finally
        {
            memory.Replies.GiveBack(bytes);
        }
    }

    /// <summary>A caller's stream.</summary>
    private sealed class Output(HostedShard shard, WatchQuery query, IServerStreamWriter<MessageBytes> responses, CancellationToken cancellation)
    {
        public HostedShard Shard => shard;

        public WatchQuery Query => query;

        public IServerStreamWriter<MessageBytes> Responses => responses;

        public CancellationToken Cancellation => cancellation;

        /// <summary>When a message was last written, as a timestamp of the clock.</summary>
        public long WrittenTimestamp { get; set; }
    }
}
