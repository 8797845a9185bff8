using System.Diagnostics.CodeAnalysis;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Node.Coordination;
using KvCluster.Serving;
using KvCluster.Serving.Memory;
using KvCluster.Storage;
using KvCluster.Storage.Pages;
using KvCluster.V1;
using KvCluster.Wire;
using WriteRequest = KvCluster.Storage.WriteRequest;

namespace KvCluster.Node.Api;

/// <summary>
/// Scans at a node: the part of the range that lies in one shard, page by page, at one snapshot, which is held until the last page is
/// taken over by the connection or the caller goes away. Any thread.
/// </summary>
internal sealed class KvScans(ShardLookup lookup, ReadOpener opener, CallMemory memory)
{
    /// <summary>A page is sent when it has so many bytes: enough to spread its costs, little enough to start soon. An entry is never cut.</summary>
    private const int PageBytes = 128 << 10;

    /// <summary>Runs a scan. The request is given back.</summary>
    /// <returns>Why there is none, or no more; null: complete.</returns>
    /// <exception cref="RpcException">The caller went away.</exception>
    public async Task<Refusal?> RunAsync(MessageBytes message, IServerStreamWriter<MessageBytes> pages, long deadlineTimestamp, CancellationToken cancellationToken)
    {
        try
        {
            var request = ScanRequest.Parser.ParseFrom(message.Written);
            message.Return();
            if (TryBound(request, out var lower, out var upper) is { } bad)
                return bad;
            byte[] options = request.Read?.ToByteArray() ?? [];
            if (ReadQuery.TryRead(options, out var query) is { } badRead)
                return badRead;
            if (lookup.FindForScan(request.Reverse, lower.Span, upper.Span, query.Mode.IsForLeader(), out var refusal) is not { } shard)
                return refusal;
            var read = await opener.OpenAsync(shard, query.In(shard.Shard, options), deadlineTimestamp, cancellationToken).ConfigureAwait(false);
            if (read.Refusal is not null)
                return read.Refusal;
            using (read.Snapshot)
                return await SendAsync(request, shard.Route, lower, upper, read, pages).ConfigureAwait(false);
        }
        catch (Exception failure) when (Refusals.Of(failure) is { } refusal)
        {
            return refusal;
        }
    }

    // The range [lower, upper) that is asked for; an empty upper: to the end of all keys.
    private static Refusal? TryBound(ScanRequest request, out ReadOnlyMemory<byte> lower, out ReadOnlyMemory<byte> upper)
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
            ? Refusals.KeyTooLong
            : null;
    }

    private static ReadOnlyMemory<byte> Greater(ReadOnlyMemory<byte> left, ReadOnlyMemory<byte> right) =>
        left.Span.SequenceCompareTo(right.Span) >= 0 ? left : right;

    private static ReadOnlyMemory<byte> LesserEnd(ReadOnlyMemory<byte> left, ReadOnlyMemory<byte> right) =>
        left.IsEmpty || left.Span.SequenceCompareTo(right.Span) > 0 ? right : left;

    private async Task<Refusal?> SendAsync(
        ScanRequest request, ShardRoute route, ReadOnlyMemory<byte> lower, ReadOnlyMemory<byte> upper, OpenedRead read, IServerStreamWriter<MessageBytes> pages)
    {
        using var cursor = read.Snapshot.Cursor(TreeId.Kv, lower.Span, upper.Span);
        var left = request.Limit == 0 ? ulong.MaxValue : request.Limit;
        bool isLast;
        do
        {
            if (!memory.Replies.TryTake(PageBytes, isSmall: false))
                return Refusals.RepliesWait;
            var more = 0;
            try
            {
                var page = MessageBytes.Rent();
                var writer = new WireWriter(page.Append(WireWriter.BytesFieldSize(WireWriter.PositionSize(route.Shard, read.AgeUs))));
                writer.PositionField(ScanPage.PositionFieldNumber, route.Shard, read.Snapshot.Etag, read.AgeUs);
                isLast = !Fill(page, cursor, request, ref left);
                if (isLast && left > 0 && TryGoOn(request.Reverse, route, lower, upper, out var nextStart))
                    new WireWriter(page.Append(WireWriter.BytesFieldSize(nextStart.Length))).BytesField(ScanPage.NextStartFieldNumber, nextStart.Span);
                // A last entry may be larger than a page.
                more = Math.Max(0, page.Count - PageBytes);
                memory.Replies.Take(more);
                if (!await StalledWrite.EndsAsync(pages.WriteAsync(page), memory.Replies).ConfigureAwait(false))
                    return Refusals.NotRead;
            }
            finally
            {
                memory.Replies.GiveBack(PageBytes + more);
            }
        }
        while (!isLast);
        return null;
    }

    // False: the range's part in this shard, or the limit, ends here.
    private static bool Fill(MessageBytes page, Cursor cursor, ScanRequest request, ref ulong left)
    {
        while (left > 0 && page.Count < PageBytes)
        {
            if (!(request.Reverse ? cursor.MovePrevious() : cursor.MoveNext()))
                return false;
            var value = KvValue.Read(cursor.Value, out var etag);
            if (request.KeysOnly)
                value = default;
            Append(page, cursor.Key, value, etag);
            left--;
        }
        return left > 0;
    }

    private static void Append(MessageBytes page, ReadOnlySpan<byte> key, ReadOnlySpan<byte> value, UInt128 etag)
    {
        var entryBytes = WireWriter.BytesFieldSize(key.Length) + WireWriter.BytesFieldSize(value.Length) + WireWriter.BytesFieldSize(WireWriter.EtagBytes);
        var writer = new WireWriter(page.Append(WireWriter.BytesFieldSize(entryBytes)));
        writer.BytesHeader(ScanPage.EntriesFieldNumber, entryBytes);
        writer.BytesField(Entry.KeyFieldNumber, key);
        writer.BytesField(Entry.ValueFieldNumber, value);
        writer.EtagField(Entry.EtagFieldNumber, etag);
    }

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
