using KvCluster.Node.Hosting;
using KvCluster.Serving;
using KvCluster.Storage;
using KvCluster.Storage.Pages;
using KvCluster.V1;
using KvCluster.Wire;
using WriteRequest = KvCluster.Storage.WriteRequest;

namespace KvCluster.Node.Api;

/// <summary>
/// Get and GetMany, of encoded requests. Called by <see cref="KvCalls"/>, which answers what is thrown before the first wait. Trees are read where <see cref="ReadThreads"/> says.
/// </summary>
internal sealed class KvReads(ShardLookup lookup, ReadOpener opener, ReadThreads threads)
{
    public ValueTask GetAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        var reader = new WireReader(request);
        ReadOnlySpan<byte> key = default, options = default;
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field == GetRequest.KeyFieldNumber)
                key = reader.ReadBytes();
            else if (field == GetRequest.ReadFieldNumber)
                options = reader.ReadBytes();
            else
                reader.Skip();
        }
        if (RequestRules.CheckKey(key) is { } bad)
            return KvCalls.Refuse(sink, bad);
        if (Find(key, options, target, out var query, out var refusal) is not { } shard)
            return KvCalls.Refuse(sink, refusal);
        var isToWait = threads.TryEnterHere();
        if (isToWait)
        {
            try
            {
                if (ReadOpener.TryOpen(shard, query, out var read))
                {
                    AnswerGet(shard, read, key, sink);
                    return ValueTask.CompletedTask;
                }
            }
            finally
            {
                threads.LeaveHere();
            }
        }
        return GetLaterAsync(key.ToArray(), shard, query, target, sink, isToWait);
    }

    public ValueTask GetManyAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        if (TryFind(request, target, out var shard, out var query) is { } refusal)
            return KvCalls.Refuse(sink, refusal);
        var isToWait = threads.TryEnterHere();
        if (isToWait)
        {
            try
            {
                if (ReadOpener.TryOpen(shard!, query, out var read))
                {
                    AnswerGetMany(shard!, read, request, sink);
                    return ValueTask.CompletedTask;
                }
            }
            finally
            {
                threads.LeaveHere();
            }
        }
        return GetManyLaterAsync(request.ToArray(), shard!, query, target, sink, isToWait);
    }

    private HostedShard? Find(ReadOnlySpan<byte> key, ReadOnlySpan<byte> options, in CallTarget target, out ReadQuery query, out Refusal refusal)
    {
        if (ReadQuery.TryRead(options, out query) is { } bad)
        {
            refusal = bad;
            return null;
        }
        if (lookup.Find(key, target, query.Mode.IsForLeader(), out refusal) is not { } shard)
            return null;
        query = query.In(shard.Shard, options);
        return shard;
    }

    // Null: all keys are of the shard found.
    private Refusal? TryFind(ReadOnlySpan<byte> request, in CallTarget target, out HostedShard? shard, out ReadQuery query)
    {
        shard = null;
        query = default;
        ReadOnlySpan<byte> first = default, options = default;
        var keyCount = 0;
        var reader = new WireReader(request);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field == GetManyRequest.ReadFieldNumber)
            {
                options = reader.ReadBytes();
            }
            else if (field == GetManyRequest.KeysFieldNumber)
            {
                var key = reader.ReadBytes();
                if (RequestRules.CheckKey(key) is { } bad)
                    return bad;
                if (++keyCount > WriteRequest.OperationCountMax)
                    return Refusals.TooManyOperations;
                if (keyCount == 1)
                    first = key;
            }
            else
            {
                reader.Skip();
            }
        }
        if (keyCount == 0)
            return Refusals.BadRequest("The request names no key.");
        shard = Find(first, options, target, out query, out var refusal);
        return shard is null ? refusal : OwnsAll(shard, request) ? null : Refusals.ShardsDiffer;
    }

    private static bool OwnsAll(HostedShard shard, ReadOnlySpan<byte> request)
    {
        var reader = new WireReader(request);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field != GetManyRequest.KeysFieldNumber)
                reader.Skip();
            else if (!shard.Owns(reader.ReadBytes()))
                return false;
        }
        return true;
    }

    private async ValueTask GetLaterAsync<TSink>(byte[] key, HostedShard shard, ReadQuery query, CallTarget target, TSink sink, bool isToWait)
        where TSink : struct, IReplySink
    {
        using var wait = target.BeginWait();
        try
        {
            // The turn comes before the snapshot, which keeps pages from being reused.
            if (!isToWait)
            {
                var turn = await threads.EnterAsync();
                try
                {
                    wait.Token.ThrowIfCancellationRequested();
                    if (ReadOpener.TryOpen(shard, query, out var opened))
                    {
                        AnswerGet(shard, opened, key, sink);
                        return;
                    }
                }
                finally
                {
                    await turn.LeaveAsync();
                }
            }
            var read = await opener.OpenAsync(shard, query, target.DeadlineTimestamp, wait.Token).ConfigureAwait(false);
            if (read.Refusal is not null)
            {
                sink.Refuse(read.Refusal);
                return;
            }
            var place = await threads.EnterAsync();
            try
            {
                AnswerGet(shard, read, key, sink);
            }
            finally
            {
                await place.LeaveAsync();
            }
        }
        catch (Exception failure) when (Refusals.Of(failure) is { } refusal)
        {
            sink.Refuse(refusal);
        }
    }

    private async ValueTask GetManyLaterAsync<TSink>(byte[] request, HostedShard shard, ReadQuery query, CallTarget target, TSink sink, bool isToWait)
        where TSink : struct, IReplySink
    {
        using var wait = target.BeginWait();
        try
        {
            // The turn comes before the snapshot, which keeps pages from being reused.
            if (!isToWait)
            {
                var turn = await threads.EnterAsync();
                try
                {
                    wait.Token.ThrowIfCancellationRequested();
                    if (ReadOpener.TryOpen(shard, query, out var opened))
                    {
                        AnswerGetMany(shard, opened, request, sink);
                        return;
                    }
                }
                finally
                {
                    await turn.LeaveAsync();
                }
            }
            var read = await opener.OpenAsync(shard, query, target.DeadlineTimestamp, wait.Token).ConfigureAwait(false);
            if (read.Refusal is not null)
            {
                sink.Refuse(read.Refusal);
                return;
            }
            var place = await threads.EnterAsync();
            try
            {
                AnswerGetMany(shard, read, request, sink);
            }
            finally
            {
                await place.LeaveAsync();
            }
        }
        catch (Exception failure) when (Refusals.Of(failure) is { } refusal)
        {
            sink.Refuse(refusal);
        }
    }

    // Ends the snapshot.
    private static void AnswerGet<TSink>(HostedShard shard, in OpenedRead read, ReadOnlySpan<byte> key, TSink sink)
        where TSink : struct, IReplySink
    {
        using (read.Snapshot)
            sink.Answer(Read(shard.Shard, read, key));
    }

    private static GetAnswer Read(uint shard, in OpenedRead read, ReadOnlySpan<byte> key)
    {
        if (!read.Snapshot.TryGet(TreeId.Kv, key, out var stored))
            return new GetAnswer(shard, read.Snapshot.Etag, read.AgeUs, found: false, default, default);
        var value = KvValue.Read(stored, out var etag);
        ReadThreads.Touch(value);
        return new GetAnswer(shard, read.Snapshot.Etag, read.AgeUs, found: true, value, etag);
    }

    // Ends the snapshot. The request has been checked.
    private static void AnswerGetMany<TSink>(HostedShard shard, in OpenedRead read, ReadOnlySpan<byte> request, TSink sink)
        where TSink : struct, IReplySink
    {
        var message = MessageBytes.Rent();
        // What the sink would refuse is counted and not copied.
        var bytes = 0;
        using (read.Snapshot)
        {
            var reader = new WireReader(request);
            for (int field; (field = reader.ReadField()) != 0;)
            {
                if (field != GetManyRequest.KeysFieldNumber)
                {
                    reader.Skip();
                    continue;
                }
                var entry = Read(shard.Shard, read, reader.ReadBytes());
                var entryBytes = entry.Size;
                bytes += WireWriter.BytesFieldSize(entryBytes);
                if (bytes > Refusals.AnswerBytesMax)
                {
                    message.Return();
                    sink.Refuse(Refusals.AnswerTooLarge);
                    return;
                }
                if (bytes > sink.ReplyBytesMax)
                    continue;
                var writer = new WireWriter(message.Append(WireWriter.BytesFieldSize(entryBytes)));
                writer.BytesHeader(GetManyResponse.EntriesFieldNumber, entryBytes);
                entry.WriteTo(writer.Take(entryBytes));
            }
        }
        if (bytes > sink.ReplyBytesMax)
            sink.Refuse(Refusals.ReplyLarge(bytes));
        else
            sink.Answer(new EncodedAnswer(message.Written));
        message.Return();
    }
}
