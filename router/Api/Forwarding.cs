using System.Diagnostics;
using System.Runtime.CompilerServices;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Client;
using KvCluster.Client.Transport;
using KvCluster.Router.Telemetry;
using KvCluster.ServiceDefaults.Hosting;
using KvCluster.ServiceDefaults.Programs;
using KvCluster.V1;
using KvCluster.Wire;
using Method = KvCluster.V1.Method;

namespace KvCluster.Router.Api;

/// <summary>
/// Forwards one encoded call and returns the encoded response. The node is chosen as in a client: <see cref="CallRouter"/> finds the shard of the key, and
/// <see cref="ReplicaChoice"/> its leader or a replica. Thread-safe.
/// </summary>
internal sealed class Forwarding(CallRouter calls, RouterMetrics metrics, LargeReplies large)
{
    private static readonly MessageParser<GetManyRequest> ManyParser = GetManyRequest.Parser.WithDiscardUnknownFields(true);

    private static readonly MessageParser<CountRequest> CountParser = CountRequest.Parser.WithDiscardUnknownFields(true);
    private static readonly MessageParser<GetRequest> GetParser = GetRequest.Parser.WithDiscardUnknownFields(true);

    private static readonly RoutedReply AnswerTooLarge = new(ByteString.Empty, CallStatus.Create(
        StatusCode.ResourceExhausted,
        "ANSWER_TOO_LARGE", $"The requested values together exceed {KvLimits.AnswerBytesMax:N0} bytes; request fewer keys.", StatusDetails.NotApplied));

    private static readonly RoutedReply PassedWaiting = new(ByteString.Empty, StatusDetails.WithWait(
        CallStatus.Create(
            StatusCode.DeadlineExceeded, KvReasons.Busy,
            "The deadline passed while the read waited behind other large reads. Request less at a time, or try again.", StatusDetails.NotApplied),
        KvProxy.RoomWait));

    private static readonly RoutedReply RepliesWait = new(ByteString.Empty, KvProxy.RepliesWait);

    /// <summary>Forwards a call. <paramref name="request"/> must not change until the answer.</summary>
    /// <param name="request">The encoded request message.</param>
    /// <param name="route">Its method, and where it goes.</param>
    /// <param name="traceparent">The caller's span, as in the W3C header; null or empty if it has none.</param>
    /// <param name="deadlineMs"><see cref="Environment.TickCount64"/> at which to give up.</param>
    /// <param name="peer">The caller's address and port. Callers share sessions, and turns of large reads, by their connections.</param>
    /// <param name="room">Room for a large response.</param>
    /// <param name="cancellationToken">The caller has stopped waiting.</param>
    [AsyncMethodBuilder(typeof(PoolingAsyncValueTaskMethodBuilder<>))]
    public async ValueTask<RoutedReply> CallAsync(
        ByteString request, RequestRoute route, string? traceparent, long deadlineMs, string peer, IReplyRoom room, CancellationToken cancellationToken)
    {
        var method = route.Method;
        if (method == Method.OpenSession)
            request = Named(request, peer);
        var began = metrics.Begin();
        var span = RouterMetrics.StartCall(method, traceparent);
        var (reason, status) = ("CANCELLED", StatusCode.Cancelled);
        try
        {
            var reply =
                await ForwardAsync(request, route, span?.Context ?? default, deadlineMs, new ReplyWay(LaneOf(method)), cancellationToken).ConfigureAwait(false);
            if (reply.Error is { } refusal && CallStatus.LargeReplyBytes(refusal) > 0)
                reply = await BringAsync(request, route, span?.Context ?? default, deadlineMs, reply, peer, room, cancellationToken).ConfigureAwait(false);
            (reason, status) = reply.Error is { } error ? (CallStatus.ReasonOf(error), (StatusCode)error.Code) : (null, StatusCode.OK);
            return reply;
        }
        finally
        {
            metrics.End(method, began, span, reason, status);
        }
    }

    /// <summary>Counts a call that is refused as busy instead of being forwarded.</summary>
    public void RefusedAsBusy(Method method) => metrics.Refused(method, KvReasons.Busy);

    /// <summary>Where a request goes, by the current map.</summary>
    public RequestRoute RouteOf(Method method, ReadOnlySpan<byte> request) => RequestRoute.Of(method, request, calls.Table);

    /// <summary>Whether there is a map, so that the shards of calls are known.</summary>
    public bool HasMap => calls.Table.IsKnown;

    /// <summary>Waits until there is a map. Returns false if the router stops.</summary>
    public Task<bool> WaitForMapAsync(CancellationToken cancellationToken) => calls.WaitForMapAsync(long.MaxValue, cancellationToken);

    // Reads first use the lane for small responses. A larger response has to wait for its turn, and not on the stream that all callers share.
    private static ReplyLane LaneOf(Method method) => method.IsRead() ? ReplyLane.Small : ReplyLane.Any;

    // A read keeps room for its response only while a node is asked for it. If that fails, the read waits on the small lane until its shard answers, like any
    // other. Otherwise a few reads of a shard without a leader would keep all the room for large responses.
    private async ValueTask<RoutedReply> BringAsync(
        ByteString request,
        RequestRoute route, ActivityContext parent, long deadlineMs, RoutedReply reply, string peer, IReplyRoom room, CancellationToken cancellationToken)
    {
        var connection = CallerNumbers.OfConnection(peer);
        for (var turn = 0; reply.Error is { } refusal && CallStatus.LargeReplyBytes(refusal) is var bytes and > 0; turn++)
        {
            // A response that has grown beyond the room meanwhile is refused by the node, with its size, and has to wait again with that size.
            var bytesMax = reply.PartBytesMax is { } parts ? ReplyWay.RoomFor(parts.Values) : ReplyWay.RoomFor(bytes);
            var way = new ReplyWay(ReplyLane.Large, bytesMax, turn, reply.PartBytesMax);
            // Checked before anything is fetched, so that a response without room stays at the node.
            var brought = !await room.HoldAsync(bytesMax, deadlineMs, cancellationToken).ConfigureAwait(false) ? null : await large.ReadAsync(
                connection,
                bytesMax,
                deadlineMs,
                (untilMs, abandoned) => room.MayRespond(bytes)
                    ? ForwardAsync(request, route, parent, untilMs, way, abandoned)
                    : ValueTask.FromResult(RepliesWait),
                cancellationToken).ConfigureAwait(false);
            if (brought is not { } answer)
                return PassedWaiting;
            reply = answer;
            if (reply.Error is not { } failure || failure == RepliesWait.Error || !CallRouter.MayRepeat(failure))
                continue;
            room.Release();
            await calls.PauseAsync(failure, turn, deadlineMs, cancellationToken).ConfigureAwait(false);
            reply = await ForwardAsync(request, route, parent, deadlineMs, new ReplyWay(ReplyLane.Small), cancellationToken).ConfigureAwait(false);
        }
        return reply;
    }

    [AsyncMethodBuilder(typeof(PoolingAsyncValueTaskMethodBuilder<>))]
    private async ValueTask<RoutedReply> ForwardAsync(
        ByteString request, RequestRoute route, ActivityContext parent, long deadlineMs, ReplyWay way, CancellationToken cancellationToken)
    {
        var (method, parts) = (route.Method, route.Parts);
        try
        {
            if (method == Method.Unspecified)
                return Refused("BAD_REQUEST", "The call has no method; nothing was applied.");
            if (!method.IsKnown())
                return new RoutedReply(ByteString.Empty, UnsupportedCall.Refusal(NodeId.None, ProgramVersion.Full, UnsupportedCall.OfExchange(method)));
            if (route.IsMalformed)
                return Refused("BAD_REQUEST", MalformedMessageException.Text);
            if (method == Method.GetMany)
                return await GetManyAsync(request, parts, deadlineMs, way, cancellationToken).ConfigureAwait(false);
            if (method is Method.Count || parts.IsOfNearest)
                return await GoOnAsync(request, route, deadlineMs, way, cancellationToken).ConfigureAwait(false);
            if (method == Method.DeleteRange)
                return await DeleteRangeAsync(request, parts.HasId, deadlineMs, cancellationToken).ConfigureAwait(false);
            if (method is Method.Write or Method.Transact or Method.SetIntersect
                && await RefusalOfDividedAsync(request, route, deadlineMs, cancellationToken).ConfigureAwait(false) is { } ofSeveral)
                return ofSeveral;
            return await calls.CallAsync(
                method,
                route.KeyOf(request),
                request,
                deadlineMs,
                cancellationToken,
                parts.HasId,
                !parts.Mode.IsForLeader(),
                parent,
                way,
                isQuiet: true,
                route.Place).ConfigureAwait(false);
        }
        catch (Exception failure) when (failure is InvalidProtocolBufferException or MalformedMessageException)
        {
            return Refused("BAD_REQUEST", MalformedMessageException.Text);
        }
    }

    // The node shares its sessions fairly among callers and would treat this router as one of them, so the caller's number is appended. The last of two
    // values of a field counts.
    private static ByteString Named(ByteString request, string peer) =>
        ByteString.CopyFrom([.. request.Span, .. new OpenSessionRequest { Caller = CallerNumbers.OfConnection(peer) }.ToByteArray()]);

    private static RoutedReply Refused(string reason, string message) =>
        new(ByteString.Empty, CallStatus.Invalid(reason, message));

    // Executes a read that may have to continue in further shards.
    private async ValueTask<RoutedReply> GoOnAsync(ByteString request, RequestRoute route, long deadlineMs, ReplyWay way, CancellationToken cancellationToken)
    {
        if (route.Parts.Positions > RequestLimits.PositionsMax)
            return Refused("BAD_REQUEST", RequestParts.TooManyPositions);
        if (route.Method == Method.Count)
        {
            var (count, countError) = await RangeCalls.CountAsync(calls, CountParser.ParseFrom(request), new(deadlineMs), cancellationToken, way)
                .ConfigureAwait(false);
            return new RoutedReply(count?.ToByteString() ?? ByteString.Empty, countError);
        }
        var (found, error) = await RangeCalls.GetNearestAsync(calls, GetParser.ParseFrom(request), new(deadlineMs), cancellationToken, way)
            .ConfigureAwait(false);
        return new RoutedReply(found?.ToByteString() ?? ByteString.Empty, error);
    }

    // The whole request goes to the first shard, and requests for the rest to the others. A request id belongs to one shard, so a range with one must be in
    // that. If only the first keys of it were removed there, the caller goes on itself.
    private async ValueTask<RoutedReply> DeleteRangeAsync(ByteString request, bool isIdentified, long deadlineMs, CancellationToken cancellationToken)
    {
        // Without its conditions: they are evaluated in the first shard, and as objects they take many times their bytes.
        var rest = RequestParts.RangeOf(request.Span);
        var bounds = KeyBounds.Of(rest.Start.Memory, rest.End.Memory, rest.Prefix.Memory);
        if (isIdentified && await RefusalOfDividedAsync(bounds, deadlineMs, cancellationToken).ConfigureAwait(false) is { } ofSeveral)
            return ofSeveral;
        var part = request;
        for (var (deleted, first) = (0ul, bounds.Lower); ;)
        {
            var reply = await calls.CallAsync(Method.DeleteRange, first, part, deadlineMs, cancellationToken, isIdentified).ConfigureAwait(false);
            if (reply.Error is not null)
                return deleted == 0 ? reply : new RoutedReply(ByteString.Empty, PartlyDeleted(reply.Error, deleted));
            var response = DeleteRangeResponse.Parser.ParseFrom(reply.Response);
            response.Deleted = deleted += response.Deleted;
            if (isIdentified || !response.HasNextStart)
                return new RoutedReply(response.ToByteString(), null);
            rest.Start = response.NextStart;
            (part, first) = (rest.ToByteString(), bounds.From(response.NextStart.Memory, reverse: false).Lower);
        }
    }

    // The refusal of a range that is not in one shard; null if it is. Without a map the call itself fails and says why.
    private async ValueTask<RoutedReply?> RefusalOfDividedAsync(KeyBounds range, long deadlineMs, CancellationToken cancellationToken) =>
        await calls.WaitForMapAsync(deadlineMs, cancellationToken).ConfigureAwait(false)
        && calls.Table.Find(range.Lower.Span) is { } route
        && range.GoesOnBeyond(route.End.Span, reverse: false)
            ? ShardsDiffer(route, calls.Table.Find(route.End.Span))
            : null;

    private static Google.Rpc.Status PartlyDeleted(Google.Rpc.Status failure, ulong deleted) => CallStatus.OutcomeUnknown(
        $"{deleted:N0} keys at the beginning of the range were removed, and then: {failure.Message}");

    // The refusal of a request whose keys are not of one shard; null if they are.
    private async ValueTask<RoutedReply?> RefusalOfDividedAsync(
        ByteString request, RequestRoute route, long deadlineMs, CancellationToken cancellationToken)
    {
        // Without a map the call itself fails and says why.
        if (!await calls.WaitForMapAsync(deadlineMs, cancellationToken).ConfigureAwait(false) || (route.IsOfOneShard && calls.Table.IsCurrent(route.Place)))
            return null;
        var last = calls.Table.Find(route.KeyOf(request).Span, route.Place);
        var keys = new RequestKeys.Walk(route.Method, request.Span);
        // The first one is that key.
        for (keys.MoveNext(); keys.MoveNext();)
        {
            var found = calls.Table.Find(keys.Current);
            if (last is not null && found?.ShardId != last.ShardId)
                return ShardsDiffer(last, found);
            last = found;
        }
        return null;
    }

    private static RoutedReply ShardsDiffer(ShardRoute one, ShardRoute? other)
    {
        var text = DividedKeys.Text(one.ShardId, other?.ShardId);
        var status = CallStatus.Create(StatusCode.FailedPrecondition, CallStatus.ShardsDiffer, text, StatusDetails.NotApplied);
        var routes = new RouteHint { Routes = { one } };
        if (other is not null)
            routes.Routes.Add(other);
        status.Details.Add(Google.Protobuf.WellKnownTypes.Any.Pack(routes));
        return new RoutedReply(ByteString.Empty, status);
    }

    private async ValueTask<RoutedReply> GetManyAsync(
        ByteString request, RequestParts parts, long deadlineMs, ReplyWay way, CancellationToken cancellationToken)
    {
        // Counted in the encoded request, because each key, position and unknown field becomes an object of many times its bytes.
        if (parts.Keys > KvLimits.KeysMax)
            return Refused("TOO_MANY_OPERATIONS", $"At most {KvLimits.KeysMax:N0} keys can be read in one call.");
        if (parts.Positions > RequestLimits.PositionsMax)
            return Refused("BAD_REQUEST", RequestParts.TooManyPositions);
        var message = ManyParser.ParseFrom(request);
        var keys = message.Keys;
        var (entries, error, partBytesMax) =
            await ManyKeys.GetAsync(calls, keys, message.Read, new(deadlineMs), cancellationToken, way, message.WithLife).ConfigureAwait(false);
        if (error is not null)
            return CallStatus.LargeReplyBytes(error) > KvLimits.AnswerBytesMax ? AnswerTooLarge
                : new RoutedReply(ByteString.Empty, error) { PartBytesMax = partBytesMax };
        var response = new GetManyResponse { Entries = { entries } };
        // Each shard's part is within the limit; the whole must be too.
        return response.CalculateSize() <= KvLimits.AnswerBytesMax
            ? new RoutedReply(response.ToByteString(), null)
            : AnswerTooLarge;
    }
}
