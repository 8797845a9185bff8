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
using WriteRequest = KvCluster.Storage.Transactions.WriteRequest;

namespace KvCluster.Node.Api;

/// <summary>
/// Scans at a node: the part of the range that lies in one shard, page by page, at one snapshot, which is held until the last page is
/// taken over by the connection or the caller goes away, and no longer than a snapshot may be. Any thread.
/// </summary>
internal sealed class KvScans(ShardLookup lookup, ReadOpener opener, ReadThreads threads, CallMemory memory, TimeProvider clock, StoreOptions options)
{
    /// <summary>How often a scan whose caller does not read looks whether its snapshot may stay: much shorter than any bound on its age.</summary>
    private static readonly TimeSpan LookInterval = TimeSpan.FromMilliseconds(250);

    /// <summary>A page is sent when it has so many bytes: enough to spread its costs, little enough to start soon. An entry is never cut.</summary>
    private const int PageBytes = 128 << 10;

    /// <summary>A page with several entries has no more: what gRPC takes unless somebody says otherwise, without what else may stand on a page, two keys.</summary>
    private const int EntriesBytesMax = (4 << 20) - (4 << 10);

    /// <summary>Runs a scan. The request is given back.</summary>
    /// <returns>Why there is none, or no more; null: complete.</returns>
    /// <exception cref="RpcException">The caller went away.</exception>
    public async Task<ApiError?> RunAsync(MessageBytes message, IServerStreamWriter<MessageBytes> pages, long deadlineTimestamp, CancellationToken cancellationToken)
    {
        // Until the scan has begun: of what it has seen nothing is needed any more then.
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
            var read = await opener.OpenAsync(shard, query.In(shard.Shard, readOptions), deadlineTimestamp, cancellationToken).ConfigureAwait(false);
            if (read.ApiError is not null)
                return read.ApiError;
            memory.Requests.GiveBack(requestBytes);
            requestBytes = 0;
            using (read.Snapshot)
                return await SendAsync(request, shard.Route, lower, upper, read, pages, cancellationToken).ConfigureAwait(false);
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

    // The read options stay bytes: each position in them, two bytes at least, would become objects.
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
                // Of two the fields are one message's, as everywhere in the format.
                case ScanRequest.ReadFieldNumber: options.Append(reader.ReadBytes()); break;
                default: reader.Skip(); break;
            }
        }
        var readOptions = options.Written.ToArray();
        options.Return();
        return (request, readOptions);
    }

    // The range [lower, upper) that is asked for; an empty upper: to the end of all keys.
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
        return Math.Max(Math.Max(request.Start.Length, request.End.Length), Math.Max(request.Prefix.Length, request.ResumeAfter.Length)) > WriteRequest.KeyBytesMax
            ? ApiErrors.KeyTooLong
            : null;
    }

    private static ReadOnlyMemory<byte> Greater(ReadOnlyMemory<byte> left, ReadOnlyMemory<byte> right) =>
        left.Span.SequenceCompareTo(right.Span) >= 0 ? left : right;

    private static ReadOnlyMemory<byte> LesserEnd(ReadOnlyMemory<byte> left, ReadOnlyMemory<byte> right) =>
        left.IsEmpty || left.Span.SequenceCompareTo(right.Span) > 0 ? right : left;

    private async Task<ApiError?> SendAsync(
        ScanRequest request, ShardRoute route, ReadOnlyMemory<byte> lower, ReadOnlyMemory<byte> upper, OpenedRead read, IServerStreamWriter<MessageBytes> pages, CancellationToken cancellationToken)
    {
        var opened = clock.GetTimestamp();
        using var cursor = read.Snapshot.Cursor(TreeId.Kv, lower.Span, upper.Span);
        var left = request.Limit == 0 ? ulong.MaxValue : request.Limit;
        // The cursor stands on an entry that the last page had no room for.
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
                var writer = new WireWriter(page.Append(WireWriter.BytesFieldSize(WireWriter.PositionSize(route.Shard, read.AgeUs))));
                writer.PositionField(ScanPage.PositionFieldNumber, route.Shard, read.Snapshot.Etag, read.AgeUs);
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
                // The page is a copy: the caller gets it, and why there are no more, when he reads again.
                var isTooOld = !await TakesInTimeAsync(taking, read.Snapshot, opened, cancellationToken).ConfigureAwait(false) || IsTooOld(read.Snapshot, opened);
                if (isTooOld)
                    read.Snapshot.Dispose();
                if (!await taking.ConfigureAwait(false))
                    return ApiErrors.NotRead;
                // With the last page the caller has all.
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

    /// <summary>Waits until the connection has taken a page, and no longer than the snapshot may be held: false.</summary>
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

    // False: the range's part in this shard, or the limit, ends here.
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

    private static void Append(MessageBytes page, ReadOnlySpan<byte> key, ReadOnlySpan<byte> value, UInt128 etag)
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
