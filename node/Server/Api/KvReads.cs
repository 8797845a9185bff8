using KvCluster.Node.Hosting;
using KvCluster.Node.Shards;
using KvCluster.Storage;
using KvCluster.Storage.Pages;
using KvCluster.V1;
using KvCluster.Wire;
using WriteRequest = KvCluster.Storage.WriteRequest;

namespace KvCluster.Node.Api;

/// <summary>Get and GetMany, of encoded requests. Called by <see cref="KvCalls"/>, which answers what is thrown before the first wait.</summary>
internal sealed class KvReads(ShardLookup lookup)
{
    /// <summary>A snapshot for a linearizable read that arrived before this call. False: this replica does not lead.</summary>
    public static async ValueTask<(bool IsOpen, ReadSnapshot Snapshot)> OpenAsync(ShardReplica replica, CancellationToken cancellationToken)
    {
        if (replica.TryOpenLinearizable(out var snapshot))
            return (true, snapshot);
        return await replica.ConfirmReadAsync(cancellationToken).ConfigureAwait(false) ? (true, replica.OpenSnapshot()) : default;
    }

    public ValueTask GetAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        var key = KvCalls.ReadKey(request);
        if (RequestRules.CheckKey(key) is { } bad)
            return KvCalls.Refuse(sink, bad);
        if (lookup.Find(key, target, out var refusal) is not { } shard)
            return KvCalls.Refuse(sink, refusal);
        if (!shard.Replica!.TryOpenLinearizable(out var snapshot))
            return GetConfirmedAsync(key.ToArray(), shard, sink, target.CancellationToken);
        AnswerGet(shard, snapshot, key, sink);
        return ValueTask.CompletedTask;
    }

    private async ValueTask GetConfirmedAsync<TSink>(byte[] key, HostedShard shard, TSink sink, CancellationToken cancellationToken)
        where TSink : struct, IReplySink
    {
        try
        {
            if (await shard.Replica!.ConfirmReadAsync(cancellationToken).ConfigureAwait(false))
                AnswerGet(shard, shard.Replica.OpenSnapshot(), key, sink);
            else
                sink.Refuse(Refusals.NotLeader(shard.Route, lookup.Node));
        }
        catch (Exception failure) when (Refusals.Of(failure) is { } refusal)
        {
            sink.Refuse(refusal);
        }
    }

    // Ends the snapshot.
    private static void AnswerGet<TSink>(HostedShard shard, ReadSnapshot snapshot, ReadOnlySpan<byte> key, TSink sink)
        where TSink : struct, IReplySink
    {
        using (snapshot)
            sink.Answer(Read(shard.Route.Shard, snapshot, key));
    }

    private static GetAnswer Read(uint shard, in ReadSnapshot snapshot, ReadOnlySpan<byte> key)
    {
        if (!snapshot.TryGet(TreeId.Kv, key, out var stored))
            return new GetAnswer(shard, snapshot.Etag, found: false, default, default);
        var value = KvValue.Read(stored, out var etag);
        return new GetAnswer(shard, snapshot.Etag, found: true, value, etag);
    }

    public ValueTask GetManyAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        var reader = new WireReader(request);
        HostedShard? shard = null;
        var keyCount = 0;
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field != GetManyRequest.KeysFieldNumber)
            {
                reader.Skip();
                continue;
            }
            var key = reader.ReadBytes();
            if (RequestRules.CheckKey(key) is { } bad)
                return KvCalls.Refuse(sink, bad);
            if (++keyCount > WriteRequest.OperationCountMax)
                return KvCalls.Refuse(sink, Refusals.TooManyOperations);
            if (shard is not null && !shard.Owns(key))
                return KvCalls.Refuse(sink, Refusals.ShardsDiffer);
            if (shard is null && (shard = lookup.Find(key, target, out var refusal)) is null)
                return KvCalls.Refuse(sink, refusal);
        }
        if (shard is null)
            return KvCalls.Refuse(sink, Refusals.BadRequest("The request names no key."));
        if (!shard.Replica!.TryOpenLinearizable(out var snapshot))
            return GetManyConfirmedAsync(request.ToArray(), shard, sink, target.CancellationToken);
        AnswerGetMany(shard, snapshot, request, sink);
        return ValueTask.CompletedTask;
    }

    private async ValueTask GetManyConfirmedAsync<TSink>(byte[] request, HostedShard shard, TSink sink, CancellationToken cancellationToken)
        where TSink : struct, IReplySink
    {
        try
        {
            if (await shard.Replica!.ConfirmReadAsync(cancellationToken).ConfigureAwait(false))
                AnswerGetMany(shard, shard.Replica.OpenSnapshot(), request, sink);
            else
                sink.Refuse(Refusals.NotLeader(shard.Route, lookup.Node));
        }
        catch (Exception failure) when (Refusals.Of(failure) is { } refusal)
        {
            sink.Refuse(refusal);
        }
    }

    // Ends the snapshot. The request has been checked.
    private static void AnswerGetMany<TSink>(HostedShard shard, ReadSnapshot snapshot, ReadOnlySpan<byte> request, TSink sink)
        where TSink : struct, IReplySink
    {
        var message = MessageBytes.Rent();
        using (snapshot)
        {
            var reader = new WireReader(request);
            for (int field; (field = reader.ReadField()) != 0;)
            {
                if (field != GetManyRequest.KeysFieldNumber)
                {
                    reader.Skip();
                    continue;
                }
                var entry = Read(shard.Route.Shard, snapshot, reader.ReadBytes());
                var entryBytes = entry.Size;
                if (message.Count + entryBytes > Refusals.AnswerBytesMax)
                {
                    message.Return();
                    sink.Refuse(Refusals.AnswerTooLarge);
                    return;
                }
                var writer = new WireWriter(message.Append(WireWriter.BytesFieldSize(entryBytes)));
                writer.BytesHeader(GetManyResponse.EntriesFieldNumber, entryBytes);
                entry.WriteTo(writer.Take(entryBytes));
            }
        }
        sink.Answer(new EncodedAnswer(message.Written));
        message.Return();
    }
}
