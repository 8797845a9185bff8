using System.Buffers.Binary;
using System.Diagnostics.CodeAnalysis;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Node.Api.Calls;
using KvCluster.Node.Api.Errors;
using KvCluster.Node.Hosting;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Node.Api.Reads;

/// <summary>
/// Scans at a node: the part of the range in one shard, page by page, at one snapshot. The snapshot is held until the connection has
/// taken the last page or the caller is gone, and no longer than the maximum age of a snapshot. Any thread.
/// </summary>
internal sealed class KvScans(ShardLookup lookup, ReadOpener opener, ReadThreads threads, KeptSnapshots kept, CallMemory memory, TimeProvider clock)
{
    /// <summary>How often a scan whose caller does not read checks the age of its snapshot. Much shorter than any bound on that age.</summary>
    private static readonly TimeSpan LookInterval = TimeSpan.FromMilliseconds(250);

    /// <summary>A page is sent when it has this many bytes. Large enough to amortize its costs, small enough to start early. An entry is never split.</summary>
    private const int PageBytes = 128 << 10;

    private readonly AbandonedWork _abandoned = new(memory.Requests);

    /// <summary>Runs a scan and returns the request's buffer.</summary>
    /// <returns>Why there is no page, or no further one; null if the scan is complete.</returns>
    /// <exception cref="RpcException">The caller is gone.</exception>
    public async Task<ApiError?> RunAsync(
        MessageBytes message, IServerStreamWriter<MessageBytes> pages, long deadlineTimestamp, CancellationToken cancellationToken)
    {
        // Accounted until the scan has begun, because the seen positions are not needed any more then.
        var requestBytes = message.Count;
        if (!memory.Requests.TryTake(requestBytes, requestBytes <= ByteBudget.SmallBytes))
            return ApiErrors.RequestsWait;
        try
        {
            var (request, readOptions) = Read(message.Written);
            message.Return();
            if (TryBound(request, out var bounds) is { } bad)
                return bad;
            if (ReadQuery.TryRead(readOptions, out var query) is { } badRead)
                return badRead;
            var isResumed = !request.Snapshot.IsEmpty;
            if (lookup.FindForScan(
                request.Reverse, bounds.Lower.Span, bounds.Upper.Span, !isResumed && query.Mode.IsForLeader(), out var refusal) is not { } shard)
                return refusal;
            var token = isResumed ? TokenIn(request.Snapshot.Span) : KeptSnapshots.NewToken();
            KeptSnapshots.Kept held;
            if (isResumed)
            {
                if (!kept.TryTake(token, shard.Shard, out held))
                    return ApiErrors.SnapshotNotKept;
            }
            else
            {
                if (query.TryIn(shard.InLineage, readOptions, out query) is { } ofAnother)
                    return ofAnother;
                var read = await opener.OpenAsync(shard, query, deadlineTimestamp, cancellationToken).ConfigureAwait(false);
                if (read.ApiError is not null)
                    return read.ApiError;
                held = new KeptSnapshots.Kept(shard.InLineage, read, clock.GetTimestamp());
            }
            memory.Requests.GiveBack(requestBytes);
            requestBytes = 0;
            var (hasEnded, filling) = (false, new Filling());
            var cursor = held.Read.Snapshot.Cursor(TreeId.Kv, bounds.Lower.Span, bounds.Upper.Span);
            try
            {
                var ended = await SendAsync(request, shard, bounds, held, cursor, token, filling, pages, cancellationToken).ConfigureAwait(false);
                hasEnded = true;
                return ended;
            }
            finally
            {
                filling.Then(() =>
                {
                    cursor.Dispose();
                    // If the stream broke, the caller may come back.
                    if (hasEnded)
                        held.Read.Snapshot.Dispose();
                    else
                        kept.Keep(token, held);
                });
            }
        }
        catch (Exception failure) when (ApiErrors.Of(failure) is { } refusal)
        {
            return refusal;
        }
        finally
        {
            memory.Requests.GiveBack(requestBytes);
        }
    }

    private static ulong TokenIn(ReadOnlySpan<byte> token) => token.Length == KeptSnapshots.TokenBytes ? BinaryPrimitives.ReadUInt64BigEndian(token) : 0;

    // The read options stay encoded, because each position in them, of at least two bytes, would become objects.
    private static (ScanRequest Request, byte[] ReadOptions) Read(ReadOnlySpan<byte> message)
    {
        var request = new ScanRequest();
        var options = MessageBytes.Rent();
        var reader = new WireReader(message);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            switch (field)
            {
                case ScanRequest.StartFieldNumber: request.Start = ByteString.CopyFrom(reader.ReadBytes()); break;
                case ScanRequest.EndFieldNumber: request.End = ByteString.CopyFrom(reader.ReadBytes()); break;
                case ScanRequest.PrefixFieldNumber: request.Prefix = ByteString.CopyFrom(reader.ReadBytes()); break;
                case ScanRequest.ReverseFieldNumber: request.Reverse = reader.ReadBool(); break;
                case ScanRequest.LimitFieldNumber: request.Limit = reader.ReadUInt64(); break;
                case ScanRequest.KeysOnlyFieldNumber: request.KeysOnly = reader.ReadBool(); break;
                case ScanRequest.BytesMaxFieldNumber: request.BytesMax = reader.ReadUInt64(); break;
                case ScanRequest.SnapshotFieldNumber: request.Snapshot = ByteString.CopyFrom(reader.ReadBytes()); break;
                case ScanRequest.WithLifeFieldNumber: request.WithLife = reader.ReadBool(); break;
                case ScanRequest.ResumeAfterFieldNumber: request.ResumeAfter = ByteString.CopyFrom(reader.ReadBytes()); break;
                // If the field occurs twice, the two are merged into one message, as protobuf requires.
                case ScanRequest.ReadFieldNumber: options.Append(reader.ReadBytes()); break;
                default: reader.Skip(); break;
            }
        }
        var readOptions = options.Written.ToArray();
        options.Return();
        return (request, readOptions);
    }

    // The part of the requested range that is left.
    private static ApiError? TryBound(ScanRequest request, out KeyBounds bounds)
    {
        bounds = KeyBounds.Of(request.Start.Memory, request.End.Memory, request.Prefix.Memory);
        if (!request.ResumeAfter.IsEmpty)
            bounds = bounds.Behind(request.ResumeAfter.Memory, request.Reverse);
        return request.ResumeAfter.Length > KvLimits.KeyBytesMax
            ? ApiErrors.KeyTooLong
            : RequestRules.CheckBounds(request.Start.Span, request.End.Span, request.Prefix.Span);
    }

    private async Task<ApiError?> SendAsync(
        ScanRequest request,
        HostedShard shard,
        KeyBounds bounds,
        KeptSnapshots.Kept held,
        Cursor cursor,
        ulong token,
        Filling filling,
        IServerStreamWriter<MessageBytes> pages,
        CancellationToken cancellationToken)
    {
        var (read, route) = (held.Read, shard.Route);
        var entries = new EntryPages(cursor, request.Reverse, request.KeysOnly)
        {
            EntriesLeft = request.Limit == 0 ? ulong.MaxValue : request.Limit,
            BytesLeft = request.BytesMax == 0 ? ulong.MaxValue : request.BytesMax,
        };
        bool isFirst = true, isLast;
        do
        {
            if (!memory.Replies.TryTake(PageBytes, isSmall: false))
                return ApiErrors.RepliesWait;
            var more = 0;
            try
            {
                var page = MessageBytes.Rent();
                WriteHead(page, held.Shard, held.ReadNow(clock), isFirst ? token : null);
                isFirst = false;
                entries.NowMs = request.WithLife ? shard.TimeMs : null;
                isLast = !await FillAsync(entries, page, filling, cancellationToken).ConfigureAwait(false);
                if (isLast && !entries.IsAtLimit && TryGoOn(request.Reverse, route, bounds, out var nextStart))
                    new WireWriter(page.Append(WireWriter.BytesFieldSize(nextStart.Length))).BytesField(ScanPage.NextStartFieldNumber, nextStart.Span);
                // An entry may be larger than a page.
                more = Math.Max(0, page.Count - PageBytes);
                memory.Replies.Take(more);
                var taking = StalledWrite.EndsAsync(pages.WriteAsync(page), memory.Replies, cancellationToken).AsTask();
                // The page is a copy, so the caller still receives it when it reads again, and then the reason why no more pages follow.
                var isTooOld = !await TakesInTimeAsync(taking, held, cancellationToken).ConfigureAwait(false) || kept.IsTooOld(held);
                if (isTooOld)
                    read.Snapshot.Dispose();
                if (!await taking.ConfigureAwait(false))
                    return ApiErrors.NotRead;
                // With the last page the caller has everything.
                if (isTooOld && !isLast)
                    return ApiErrors.SnapshotTooOld;
            }
            finally
            {
                if (filling.IsOver)
                    memory.Replies.GiveBack(PageBytes + more);
                else
                    filling.Then(() => memory.Replies.GiveBack(PageBytes));
            }
        }
        while (!isLast);
        return null;
    }

    /// <summary>
    /// Fills a page, and tells whether there are more. If the caller goes away while that waits for the disk, the scan ends, and the filling goes on.
    /// </summary>
    private async ValueTask<bool> FillAsync(EntryPages entries, MessageBytes page, Filling filling, CancellationToken cancellationToken)
    {
        var fill = FillAsync(entries, page);
        if (fill.IsCompleted)
            return await fill.ConfigureAwait(false);
        var work = fill.AsTask();
        filling.Work = work;
        return await _abandoned.EndsFirstAsync(work, cancellationToken).ConfigureAwait(false)
            ? await work.ConfigureAwait(false)
            : throw new OperationCanceledException(cancellationToken);
    }

    private async ValueTask<bool> FillAsync(EntryPages entries, MessageBytes page)
    {
        var place = await threads.EnterAsync();
        try
        {
            return entries.Fill(page, PageBytes);
        }
        finally
        {
            await place.LeaveAsync();
        }
    }

    /// <summary>Waits until the connection has taken a page. False if the snapshot became too old first.</summary>
    private async ValueTask<bool> TakesInTimeAsync(Task taking, KeptSnapshots.Kept held, CancellationToken cancellationToken)
    {
        while (!taking.IsCompleted)
        {
            try
            {
                await taking.WaitAsync(LookInterval, clock, cancellationToken).ConfigureAwait(false);
            }
            catch (TimeoutException) when (!taking.IsCompleted)
            {
                if (kept.IsTooOld(held))
                    return false;
            }
        }
        return true;
    }

    private static void WriteHead(MessageBytes page, LineageShard shard, in OpenedRead read, ulong? token)
    {
        var writer = new WireWriter(page.Append(
            WireWriter.BytesFieldSize(WireWriter.PositionSize(shard, read.AgeUs)) + (token is null ? 0 : WireWriter.BytesFieldSize(KeptSnapshots.TokenBytes))));
        writer.PositionField(ScanPage.PositionFieldNumber, shard, read.Snapshot.Etag, read.AgeUs);
        if (token is not { } value)
            return;
        writer.BytesHeader(ScanPage.SnapshotFieldNumber, KeptSnapshots.TokenBytes);
        BinaryPrimitives.WriteUInt64BigEndian(writer.Take(KeptSnapshots.TokenBytes), value);
    }

    private static bool TryGoOn(bool reverse, ShardRoute route, in KeyBounds bounds, [NotNullWhen(true)] out ByteString? nextStart)
    {
        nextStart = reverse ? route.Start : route.End;
        return bounds.GoesOnBeyond(nextStart.Span, reverse);
    }

    /// <summary>The filling of a scan's present page, which may go on after the scan has ended. What it uses is released then.</summary>
    private sealed class Filling
    {
        public Task Work { get; set; } = Task.CompletedTask;

        public bool IsOver => Work.IsCompleted;

        /// <summary>Does something when the filling has ended.</summary>
        public void Then(Action release)
        {
            if (IsOver)
                release();
            else
                _ = ReleaseAsync(release);
        }

        private async Task ReleaseAsync(Action release)
        {
            await Work.ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
            release();
        }
    }
}
