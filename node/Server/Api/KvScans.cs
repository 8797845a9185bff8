using System.Diagnostics.CodeAnalysis;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Node.Coordination.Etcd;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Node.Api;

/// <summary>
/// Scans at a node: the part of the range in one shard, page by page, at one snapshot. The snapshot is held until the connection has
/// taken the last page or the caller is gone, and no longer than the maximum age of a snapshot. Any thread.
/// </summary>
internal sealed class KvScans(ShardLookup lookup, ReadOpener opener, ReadThreads threads, CallMemory memory, TimeProvider clock, StoreOptions options)
{
    /// <summary>How often a scan whose caller does not read checks the age of its snapshot. Much shorter than any bound on that age.</summary>
    private static readonly TimeSpan LookInterval = TimeSpan.FromMilliseconds(250);

    /// <summary>A page is sent when it has this many bytes. Large enough to amortize its costs, small enough to start early. An entry is never split.</summary>
    private const int PageBytes = 128 << 10;

    /// <summary>Bound for a page with several entries: gRPC's default message limit, less the page's other fields and two keys.</summary>
    private const int EntriesBytesMax = (4 << 20) - (4 << 10);

    /// <summary>Runs a scan and returns the request's buffer.</summary>
    /// <returns>Why there is no page, or no further one; null if the scan is complete.</returns>
    /// <exception cref="RpcException">The caller is gone.</exception>
    public async Task<ApiError?> RunAsync(MessageBytes message, IServerStreamWriter<MessageBytes> pages, long deadlineTimestamp, CancellationToken cancellationToken)
    {
        // Accounted until the scan has begun, because the seen positions are not needed any more then.
        var requestBytes = message.Count;
        if (!memory.Requests.TryTake(requestBytes, requestBytes <= ByteBudget.SmallBytes))
            return ApiErrors.RequestsWait;
        try
        {
            var (request, readOptions) = Read(message.Written);
            message.Return();
            if (TryBound(request, out var lower, out var upper) is { } bad)
                return bad;
            if (ReadQuery.TryRead(readOptions, out var query) is { } badRead)
                return badRead;
            if (lookup.FindForScan(request.Reverse, lower.Span, upper.Span, query.Mode.IsForLeader(), out var refusal) is not { } shard)
                return refusal;
            if (query.TryIn(shard.InLineage, readOptions, out query) is { } ofAnother)
                return ofAnother;
            var read = await opener.OpenAsync(shard, query, deadlineTimestamp, cancellationToken).ConfigureAwait(false);
            if (read.ApiError is not null)
                return read.ApiError;
            memory.Requests.GiveBack(requestBytes);
            requestBytes = 0;
            using (read.Snapshot)
                return await SendAsync(request, shard.InLineage, shard.Route, lower, upper, read, pages, cancellationToken).ConfigureAwait(false);
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

    // The requested range [lower, upper). An empty upper means the end of all keys.
    private static ApiError? TryBound(ScanRequest request, out ReadOnlyMemory<byte> lower, out ReadOnlyMemory<byte> upper)
    {
        lower = Greater(request.Start.Memory, request.Prefix.Memory);
        upper = request.End.Memory;
        if (!request.Prefix.IsEmpty && EtcdRequests.EndOfPrefix(request.Prefix) is var end && end is not [0])
            upper = LesserEnd(upper, end.Memory);
        if (!request.ResumeAfter.IsEmpty)
        {
            if (request.Reverse)
                upper = LesserEnd(upper, request.ResumeAfter.Memory);
            else
                lower = Greater(lower, (byte[])[.. request.ResumeAfter.Span, 0]);
        }
        return Math.Max(Math.Max(request.Start.Length, request.End.Length), Math.Max(request.Prefix.Length, request.ResumeAfter.Length)) > KvLimits.KeyBytesMax
            ? ApiErrors.KeyTooLong
            : null;
    }

    private static ReadOnlyMemory<byte> Greater(ReadOnlyMemory<byte> left, ReadOnlyMemory<byte> right) =>
        left.Span.SequenceCompareTo(right.Span) >= 0 ? left : right;

    private static ReadOnlyMemory<byte> LesserEnd(ReadOnlyMemory<byte> left, ReadOnlyMemory<byte> right) =>
        left.IsEmpty || left.Span.SequenceCompareTo(right.Span) > 0 ? right : left;

    private async Task<ApiError?> SendAsync(
        ScanRequest request, LineageShard shard, ShardRoute route, ReadOnlyMemory<byte> lower, ReadOnlyMemory<byte> upper, OpenedRead read, IServerStreamWriter<MessageBytes> pages, CancellationToken cancellationToken)
    {
        var opened = clock.GetTimestamp();
        using var cursor = read.Snapshot.Cursor(TreeId.Kv, lower.Span, upper.Span);
        var left = request.Limit == 0 ? ulong.MaxValue : request.Limit;
        // Whether the cursor is on an entry for which the last page had no space.
        var isAhead = false;
        bool isLast;
        do
        {
            if (!memory.Replies.TryTake(PageBytes, isSmall: false))
                return ApiErrors.RepliesWait;
            var more = 0;
            try
            {
                var page = MessageBytes.Rent();
                var writer = new WireWriter(page.Append(WireWriter.BytesFieldSize(WireWriter.PositionSize(shard, read.AgeUs))));
                writer.PositionField(ScanPage.PositionFieldNumber, shard, read.Snapshot.Etag, read.AgeUs);
                var place = await threads.EnterAsync();
                try
                {
                    isLast = !Fill(page, cursor, request, ref left, ref isAhead);
                }
                finally
                {
                    await place.LeaveAsync();
                }
                if (isLast && left > 0 && TryGoOn(request.Reverse, route, lower, upper, out var nextStart))
                    new WireWriter(page.Append(WireWriter.BytesFieldSize(nextStart.Length))).BytesField(ScanPage.NextStartFieldNumber, nextStart.Span);
                // An entry may be larger than a page.
                more = Math.Max(0, page.Count - PageBytes);
                memory.Replies.Take(more);
                var taking = StalledWrite.EndsAsync(pages.WriteAsync(page), memory.Replies).AsTask();
                // The page is a copy. The caller receives it, and the reason why there are no more, when it reads again.
                var isTooOld = !await TakesInTimeAsync(taking, read.Snapshot, opened, cancellationToken).ConfigureAwait(false) || IsTooOld(read.Snapshot, opened);
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
                memory.Replies.GiveBack(PageBytes + more);
            }
        }
        while (!isLast);
        return null;
    }

    /// <summary>Waits until the connection has taken a page. False if the snapshot became too old first.</summary>
    private async ValueTask<bool> TakesInTimeAsync(Task taking, ReadSnapshot snapshot, long opened, CancellationToken cancellationToken)
    {
        while (!taking.IsCompleted)
        {
            try
            {
                await taking.WaitAsync(LookInterval, clock, cancellationToken).ConfigureAwait(false);
            }
            catch (TimeoutException) when (!taking.IsCompleted)
            {
                if (IsTooOld(snapshot, opened))
                    return false;
            }
        }
        return true;
    }

    private bool IsTooOld(ReadSnapshot snapshot, long opened) => snapshot.IsTooOld || clock.GetElapsedTime(opened) >= options.SnapshotAgeMax;

    // False if the limit is reached or the range ends in this shard.
    private static bool Fill(MessageBytes page, Cursor cursor, ScanRequest request, ref ulong left, ref bool isAhead)
    {
        var isEmpty = true;
        while (left > 0 && page.Count < PageBytes)
        {
            if (!isAhead && !(request.Reverse ? cursor.MovePrevious() : cursor.MoveNext()))
                return false;
            var value = KvValue.Read(cursor.Value, out var etag);
            if (request.KeysOnly)
                value = default;
            isAhead = !isEmpty && page.Count + WireWriter.BytesFieldSize(EntryBytes(cursor.Key, value)) > EntriesBytesMax;
            if (isAhead)
                return true;
            Append(page, cursor.Key, value, etag);
            isEmpty = false;
            left--;
        }
        return left > 0;
    }

    private static void Append(MessageBytes page, ReadOnlySpan<byte> key, ReadOnlySpan<byte> value, Etag etag)
    {
        var entryBytes = EntryBytes(key, value);
        var writer = new WireWriter(page.Append(WireWriter.BytesFieldSize(entryBytes)));
        writer.BytesHeader(ScanPage.EntriesFieldNumber, entryBytes);
        writer.BytesField(Entry.KeyFieldNumber, key);
        writer.BytesField(Entry.ValueFieldNumber, value);
        writer.EtagField(Entry.EtagFieldNumber, etag);
    }

    private static int EntryBytes(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value) =>
        WireWriter.BytesFieldSize(key.Length) + WireWriter.BytesFieldSize(value.Length) + WireWriter.BytesFieldSize(WireWriter.EtagBytes);

    private static bool TryGoOn(
        bool reverse, ShardRoute route, ReadOnlyMemory<byte> lower, ReadOnlyMemory<byte> upper, [NotNullWhen(true)] out ByteString? nextStart)
    {
        nextStart = reverse ? route.Start : route.End;
        if (nextStart.IsEmpty)
            return false;
        return reverse
            ? nextStart.Span.SequenceCompareTo(lower.Span) > 0
            : upper.IsEmpty || nextStart.Span.SequenceCompareTo(upper.Span) < 0;
    }
}
