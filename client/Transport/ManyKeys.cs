using Google.Protobuf;
using KvCluster.Client.Routing;
using KvCluster.V1;
using Status = Google.Rpc.Status;

namespace KvCluster.Client.Transport;

/// <summary>Reads many keys with one call for each shard that owns some of them. Used by the client library and the router.</summary>
internal static class ManyKeys
{
    /// <summary>The longest wait for news of the map before keys are grouped again.</summary>
    private static readonly TimeSpan RegroupPause = TimeSpan.FromMilliseconds(100);

    /// <summary>
    /// Returns one entry for each key, in the order of the keys, or none if <c>Error</c> is set. Keys that a shard no longer has are grouped again by the
    /// newer map. If the shards' responses are too large for the lane, the error has the sum of all, and <c>PartBytesMax</c> the room to keep for each of
    /// them.
    /// </summary>
    public static async ValueTask<(IReadOnlyList<GetResponse> Entries, Status? Error, IReadOnlyDictionary<ShardId, int>? PartBytesMax)> GetAsync(
        CallRouter calls, IReadOnlyList<ByteString> keys, ReadOptions? read, CallTerms terms, CancellationToken cancellationToken,
        ReplyWay way = default, bool withLife = false)
    {
        await calls.WaitForMapAsync(terms.DeadlineMs, cancellationToken).ConfigureAwait(false);
        while (true)
        {
            var changed = calls.Table.NextChange();
            var answer = await GetByGroupAsync(calls, keys, read, terms, cancellationToken, way, withLife).ConfigureAwait(false);
            if (answer.Error is not { } error || CallStatus.ReasonOf(error) != CallStatus.ShardsDiffer)
                return answer;
            var left = calls.Runtime.Left(terms.DeadlineMs);
            // The caller's keys may be of several shards, so this is never the caller's mistake.
            if (left <= TimeSpan.Zero)
                return ([], CallStatus.DeadlinePassed("the keys were grouped by a map of the shards that was out of date"), null);
            // The refusal had the routes that its node knows, and the map stream brings the others.
            await Task.WhenAny(changed, calls.Runtime.DelayAsync(left < RegroupPause ? left : RegroupPause, cancellationToken)).ConfigureAwait(false);
            cancellationToken.ThrowIfCancellationRequested();
        }
    }

    private static async ValueTask<(IReadOnlyList<GetResponse> Entries, Status? Error, IReadOnlyDictionary<ShardId, int>? PartBytesMax)> GetByGroupAsync(
        CallRouter calls, IReadOnlyList<ByteString> keys, ReadOptions? read, CallTerms terms, CancellationToken cancellationToken, ReplyWay way, bool withLife)
    {
        var entries = new GetResponse[keys.Count];
        var groups = Enumerable.Range(0, keys.Count).GroupBy(index => calls.Table.ShardOf(keys[index].Span));
        var seen = read?.Mode == ReadMode.Session ? read.Seen.ToLookup(static position => position.ShardId) : null;
        var answers = await Task.WhenAll(groups.Select(group => GetOfShardAsync(
            calls, keys, [.. group], OptionsOf(group.Key, read, seen), terms,
            cancellationToken, way with { BytesMax = way.PartBytesMax?.GetValueOrDefault(group.Key) ?? 0 }, group.Key, withLife))).ConfigureAwait(false);
        var largeBytes = 0L;
        foreach (var (_, indexes, response, error) in answers)
        {
            if (error is not null)
            {
                if (CallStatus.LargeReplyBytes(error) is var bytes and > 0)
                {
                    largeBytes += bytes;
                    continue;
                }
                return ([], error, null);
            }
            for (var place = 0; place < indexes.Length; place++)
                entries[indexes[place]] = response!.Entries[place];
        }
        if (largeBytes == 0)
            return (entries, null, null);
        // Small parts are requested again with the rest.
        var sizes = answers.ToDictionary(
            static answer => answer.Shard, static answer => answer.Error is { } error ? CallStatus.LargeReplyBytes(error) : answer.Response!.CalculateSize());
        return ([], CallStatus.ReplyLarge(sizes.Values.Sum(static bytes => (long)bytes)), sizes.ToDictionary(
            static size => size.Key,
            // The room for a part never gets smaller, so that parts that grow in turn all fit in the end.
            size => Math.Max(ReplyWay.RoomFor(size.Value), way.PartBytesMax?.GetValueOrDefault(size.Key) ?? 0)));
    }

    // Each part is a request of its own, and a node ignores the positions of other shards. With all positions in every part, the total size would be
    // multiplied by the number of shards.
    private static ReadOptions? OptionsOf(ShardId shard, ReadOptions? read, ILookup<ShardId, Position>? seen) =>
        read is null || read.Seen.Count == 0 || (seen is not null && shard == RouteTable.NoShard)
            ? read
            : new ReadOptions { Mode = read.Mode, Seen = { seen?[shard] ?? [] } };

    private static async Task<(ShardId Shard, int[] Indexes, GetManyResponse? Response, Status? Error)> GetOfShardAsync(
        CallRouter calls, IReadOnlyList<ByteString> keys,
        int[] indexes, ReadOptions? read, CallTerms terms, CancellationToken cancellationToken, ReplyWay way, ShardId shard, bool withLife)
    {
        var request = new GetManyRequest { Read = read, WithLife = withLife };
        foreach (var index in indexes)
            request.Keys.Add(keys[index]);
        var reply = await calls.CallAsync(
            Method.GetMany, keys[indexes[0]].Memory,
            request.ToByteString(), terms.DeadlineMs, cancellationToken, atAnyReplica: read?.Mode.IsForLeader() == false, way: way,
            noRetry: terms.NoRetry, hedgeAfter: terms.HedgeAfter).ConfigureAwait(false);
        return (shard, indexes, reply.Error is null ? GetManyResponse.Parser.ParseFrom(reply.Response) : null, reply.Error);
    }
}
