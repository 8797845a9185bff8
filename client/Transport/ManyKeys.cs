using Google.Protobuf;
using KvCluster.Serving;
using KvCluster.V1;
using Status = Google.Rpc.Status;

namespace KvCluster.Client.Transport;

/// <summary>Reads many keys with one call for each shard that owns some of them. Used by the client library and the router.</summary>
internal static class ManyKeys
{
    /// <summary>One entry for each key, in the order of the keys; with <c>Error</c> set, nothing. Where the responses of shards are too large for the lane, the error says the sum of all.</summary>
    public static async ValueTask<(IReadOnlyList<GetResponse> Entries, Status? Error)> GetAsync(
        CallRouter calls, IReadOnlyList<ByteString> keys, ReadOptions? read, long deadlineMs, CancellationToken cancellationToken,
        ReplyLane lane = ReplyLane.Any)
    {
        await calls.WaitForMapAsync(deadlineMs, cancellationToken).ConfigureAwait(false);
        var entries = new GetResponse[keys.Count];
        var groups = Enumerable.Range(0, keys.Count).GroupBy(index => calls.Table.Find(keys[index].Span)?.Shard ?? 0);
        var answers = await Task.WhenAll(groups.Select(group => GetOfShardAsync(calls, keys, [.. group], read, deadlineMs, cancellationToken, lane))).ConfigureAwait(false);
        var largeBytes = 0L;
        foreach (var (indexes, response, error) in answers)
        {
            if (error is not null)
            {
                if (CallStatus.LargeReplyBytes(error) is var bytes and > 0)
                {
                    largeBytes += bytes;
                    continue;
                }
                return ([], error);
            }
            for (var place = 0; place < indexes.Length; place++)
                entries[indexes[place]] = response!.Entries[place];
        }
        // What is small is asked for again with the rest.
        return largeBytes > 0 ? ([], CallStatus.ReplyLarge(largeBytes + answers.Sum(static answer => answer.Response?.CalculateSize() ?? 0L))) : (entries, null);
    }

    private static async Task<(int[] Indexes, GetManyResponse? Response, Status? Error)> GetOfShardAsync(
        CallRouter calls, IReadOnlyList<ByteString> keys, int[] indexes, ReadOptions? read, long deadlineMs, CancellationToken cancellationToken, ReplyLane lane)
    {
        var request = new GetManyRequest { Read = read };
        foreach (var index in indexes)
            request.Keys.Add(keys[index]);
        var reply = await calls.CallAsync(
            Method.GetMany, keys[indexes[0]].Memory, request.ToByteString(), deadlineMs, cancellationToken, atAnyReplica: read?.Mode.IsForLeader() == false, lane: lane).ConfigureAwait(false);
        return (indexes, reply.Error is null ? GetManyResponse.Parser.ParseFrom(reply.Response) : null, reply.Error);
    }
}
