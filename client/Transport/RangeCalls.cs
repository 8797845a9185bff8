using Google.Protobuf;
using KvCluster.V1;
using Status = Google.Rpc.Status;

namespace KvCluster.Client.Transport;

/// <summary>
/// Reads that go on from one shard to the next until they are whole: each node answers for its shard and says where the range continues. Used by the client
/// library and the router; thread-safe.
/// </summary>
internal static class RangeCalls
{
    /// <summary>Counts the keys of a range over all its shards. The position is that of the last one.</summary>
    public static async ValueTask<(CountResponse? Response, Status? Error)> CountAsync(
        CallRouter calls, CountRequest request, CallTerms terms, CancellationToken cancellationToken, ReplyWay way = default)
    {
        var rest = request.Clone();
        for (var count = 0ul; ;)
        {
            var first = KeyBounds.Of(rest.Start.Memory, rest.End.Memory, rest.Prefix.Memory).Lower;
            var reply = await CallAsync(calls, Method.Count, first, rest, rest.Read, terms, cancellationToken, way).ConfigureAwait(false);
            if (reply.Error is { } error)
                return (null, error);
            var response = CountResponse.Parser.ParseFrom(reply.Response);
            response.Count = count += response.Count;
            if (!response.HasNextStart)
                return (response, null);
            rest.Start = response.NextStart;
        }
    }

    /// <summary>Gets the nearest key, from the requested key's shard or from those beside it.</summary>
    public static async ValueTask<(GetResponse? Response, Status? Error)> GetNearestAsync(
        CallRouter calls, GetRequest request, CallTerms terms, CancellationToken cancellationToken, ReplyWay way = default)
    {
        var rest = request.Clone();
        while (true)
        {
            var reply = await CallAsync(calls, Method.Get, rest.Key.Memory, rest, rest.Read, terms, cancellationToken, way).ConfigureAwait(false);
            if (reply.Error is { } error)
                return (null, error);
            var response = GetResponse.Parser.ParseFrom(reply.Response);
            if (!response.HasNextBound)
                return (response, null);
            var isUpwards = rest.Nearest is Nearest.Ceiling or Nearest.Higher;
            rest.Key = isUpwards ? response.NextBound : UnsafeByteOperations.UnsafeWrap(KeyBounds.Before(response.NextBound.Span));
            rest.Nearest = isUpwards ? Nearest.Ceiling : Nearest.Floor;
        }
    }

    private static ValueTask<RoutedReply> CallAsync(
        CallRouter calls,
        Method method, ReadOnlyMemory<byte> key, IMessage request, ReadOptions? read, CallTerms terms, CancellationToken cancellationToken, ReplyWay way) =>
        calls.CallAsync(
            method, key, request.ToByteString(), terms.DeadlineMs, cancellationToken, atAnyReplica: read?.Mode.IsForLeader() == false, way: way,
            noRetry: terms.NoRetry, hedgeAfter: terms.HedgeAfter);
}
