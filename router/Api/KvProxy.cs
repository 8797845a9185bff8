using Google.Protobuf;
using Grpc.Core;
using KvCluster.Client;
using KvCluster.Client.Transport;
using KvCluster.Router.Telemetry;
using KvCluster.ServiceDefaults.Exchanges;
using KvCluster.ServiceDefaults.Hosting;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.Telemetry;
using KvCluster.V1;
using KvCluster.Wire;
using Microsoft.Extensions.Logging;
using Method = KvCluster.V1.Method;

namespace KvCluster.Router.Api;

/// <summary>
/// The service Kv of a router. Every call goes to the leader of its key's shard, or to any replica if it is a read that allows it, as the bytes received. A
/// singleton.
/// </summary>
internal sealed class KvProxy(
    Forwarding forwarding, CallRouter calls,
    NodeChannels channels, RouterMetrics metrics, CallMemory memory, RouterOptions options, ILogger<KvProxy> log) : EncodedKvService, IReplyRoom
{
    /// <summary>
    /// The size assumed for a scan's first page, of which nothing is known. Larger than most pages, because a single large value makes a page larger.
    /// </summary>
    private const int FirstPageBytes = 2 << 20;

    /// <summary>Fields that this version does not know are discarded, because as objects they take twenty times their bytes.</summary>
    private static readonly MessageParser<ScanRequest> ScanParser = ScanRequest.Parser.WithDiscardUnknownFields(true);

    private static readonly MessageParser<WatchRequest> WatchParser = WatchRequest.Parser.WithDiscardUnknownFields(true);

    private static readonly TimeSpan RoomPause = TimeSpan.FromMilliseconds(10);

    /// <summary>How long whoever finds no memory is asked to wait, which is as long as nodes ask.</summary>
    public static readonly TimeSpan RoomWait = TimeSpan.FromMilliseconds(50);

    /// <summary>The error of a call for whose request there is no room.</summary>
    public static readonly Google.Rpc.Status RequestsWait =
        WithoutRoom("The router has reached its limit of memory for requests; nothing was applied. Try again.");

    /// <summary>The error of a read for whose response there is no room.</summary>
    public static readonly Google.Rpc.Status RepliesWait = WithoutRoom("The router has reached its limit of memory for unread replies. Try again.");

    // The refusal of a node that does not keep the snapshot of a token. A walk over the shards has tokens of its own, so a caller's token means nothing here.
    private static readonly Google.Rpc.Status SnapshotNotKept = CallStatus.Create(
        StatusCode.Aborted,
        CallStatus.SnapshotTooOld,
        "A router keeps no snapshots, and does not know which node keeps the one of the token. The entries received are valid; "
        + "begin again without the token, or continue after the last entry in a newer snapshot.",
        StatusDetails.NotApplied);

    private readonly AbandonedWork _abandoned = new(memory.Requests);
    private readonly ExchangePlaces _places = new(memory.Requests);
    private readonly MessageRoom _watchRoom = new(memory.Replies);

    protected override async Task Scan(MessageBytes request, IServerStreamWriter<MessageBytes> responseStream, ServerCallContext context)
    {
        var began = metrics.Begin();
        string? error = "CANCELLED";
        // The request is sent to one shard after the other, so it is counted for as long as the scan lasts.
        var requestBytes = 0;
        try
        {
            requestBytes = HoldRequest(request, RequestParts.CountPositions(request.Written, ScanRequest.ReadFieldNumber), RequestParts.TooManyPositions);
            var message = ScanParser.ParseFrom(request.Written);
            request.Return();
            if (!message.Snapshot.IsEmpty)
                throw SnapshotNotKept.ToRpcException();
            await SendPagesAsync(message, responseStream, context).ConfigureAwait(false);
            error = null;
        }
        catch (Exception failure) when (failure is InvalidProtocolBufferException or MalformedMessageException)
        {
            error = Spans.NameOf(StatusCode.InvalidArgument);
            throw CallStatus.Invalid("BAD_REQUEST", MalformedMessageException.Text).ToRpcException();
        }
        catch (RpcException failure)
        {
            error = Spans.NameOf(failure.StatusCode);
            throw;
        }
        finally
        {
            memory.Requests.GiveBack(requestBytes);
            metrics.EndScan(began, error);
        }
    }

    protected override async Task Watch(MessageBytes request, IServerStreamWriter<MessageBytes> responseStream, ServerCallContext context)
    {
        var requestBytes = 0;
        try
        {
            requestBytes = HoldRequest(request, RequestParts.CountPositionsOfWatch(request.Written), RequestParts.TooManyPositionsOfWatch);
            var message = WatchParser.ParseFrom(request.Written);
            request.Return();
            if (IsRepeated(message.After.Select(static position => position.Shard))
                || IsRepeated(message.InitialAfter.Select(static progress => progress.Position?.Shard ?? 0)))
                throw CallStatus.Invalid("BAD_REQUEST", RequestLimits.RepeatedPositionOfWatch).ToRpcException();
            await SendEventsAsync(message, responseStream, context).ConfigureAwait(false);
        }
        catch (Exception failure) when (failure is InvalidProtocolBufferException or MalformedMessageException)
        {
            throw CallStatus.Invalid("BAD_REQUEST", MalformedMessageException.Text).ToRpcException();
        }
        finally
        {
            memory.Requests.GiveBack(requestBytes);
        }
    }

    private static Google.Rpc.Status WithoutRoom(string message) =>
        StatusDetails.WithWait(CallStatus.Create(StatusCode.Unavailable, KvReasons.Busy, message, StatusDetails.NotApplied), RoomWait);

    private static bool IsRepeated(IEnumerable<uint> shards)
    {
        var seen = new HashSet<uint>();
        return !shards.All(seen.Add);
    }

    // The bytes of a message are counted from when a node has sent it until it is read, those of a large one from before it is received.
    private async Task SendEventsAsync(WatchRequest message, IServerStreamWriter<MessageBytes> responseStream, ServerCallContext context)
    {
        var walk = new WatchWalk(calls, channels, options.Timeout)
        {
            Received = bytes => memory.Replies.Take(bytes),
            Read = bytes => memory.Replies.GiveBack(bytes),
            MakeRoomAsync = async (bytes, cancellationToken) =>
                (await _watchRoom.TakeAsync(bytes, TimeProvider.System, cancellationToken).ConfigureAwait(false)).GiveBack,
        };
        await foreach (var received in walk.MessagesAsync(message, context.CancellationToken).ConfigureAwait(false))
        {
            if (!await StalledWrite.EndsAsync(responseStream.WriteAsync(received.Encode()), memory.Replies, context.CancellationToken).ConfigureAwait(false))
                throw CallStatus.Create(
                    StatusCode.ResourceExhausted, "NOT_READ",
                    "The caller does not read the events that it asked for. Watch again after the last position received.", StatusDetails.NotApplied)
                    .ToRpcException();
        }
    }

    // The bytes of a page are counted from before it is requested, when its size is guessed, until it is read.
    private async Task SendPagesAsync(ScanRequest message, IServerStreamWriter<MessageBytes> responseStream, ServerCallContext context)
    {
        var walk = new ScanWalk(calls, channels, Deadlines.PatienceOf(context, options.Timeout));
        await using var pages = walk.PagesAsync(message, context.CancellationToken).GetAsyncEnumerator(context.CancellationToken);
        var held = FirstPageBytes;
        await HoldAsync(held, context.CancellationToken).ConfigureAwait(false);
        try
        {
            while (await pages.MoveNextAsync().ConfigureAwait(false))
            {
                var response = pages.Current.Encode();
                // This page has been received. The next ones have to wait for it.
                memory.Replies.Take(response.Count - held);
                held = response.Count;
                if (!await StalledWrite.EndsAsync(responseStream.WriteAsync(response), memory.Replies, context.CancellationToken).ConfigureAwait(false))
                    throw CallStatus.Create(
                        StatusCode.ResourceExhausted, "NOT_READ", "The caller does not read the reply that it requested.", StatusDetails.NotApplied)
                        .ToRpcException();
            }
        }
        finally
        {
            memory.Replies.GiveBack(held);
        }
    }

    private async ValueTask HoldAsync(int bytes, CancellationToken cancellationToken)
    {
        var giveUpMs = Environment.TickCount64 + (long)options.Timeout.TotalMilliseconds;
        while (!memory.Replies.TryTake(bytes, isSmall: false))
        {
            if (Environment.TickCount64 >= giveUpMs)
                throw RepliesWait.ToRpcException();
            await Task.Delay(RoomPause, cancellationToken).ConfigureAwait(false);
        }
    }

    protected override async Task Exchange(
        IAsyncStreamReader<MessageBytes> requestStream, IServerStreamWriter<MessageBytes> responseStream, ServerCallContext context)
    {
        using var exchange = new ExchangeProxy(forwarding, options, _places, memory, log, responseStream, context.Peer, context.CancellationToken);
        await exchange.RunAsync(requestStream).ConfigureAwait(false);
    }

    protected override Task BulkLoad(
        IAsyncStreamReader<MessageBytes> requestStream, IServerStreamWriter<MessageBytes> responseStream, ServerCallContext context)
    {
        var division = new BulkLoadDivision(forwarding, calls, memory.Requests, options, context, this);
        return new BulkLoadStream(division.LoadAsync, responseStream, memory.Replies).RunAsync(requestStream, context.CancellationToken);
    }

    // A unary call writes only its own response, so it need not wait for others.
    ValueTask<bool> IReplyRoom.HoldAsync(int bytes, long deadlineMs, CancellationToken cancellationToken) => ValueTask.FromResult(true);

    void IReplyRoom.Release()
    {
        // No room is kept for the response of a unary call.
    }

    bool IReplyRoom.MayRespond(int bytes) => memory.MayRespond(bytes);

    // Includes the memory of positions as objects, which may be many.
    private int HoldRequest(MessageBytes request, int positions, string tooMany)
    {
        if (positions > RequestLimits.PositionsMax)
            throw CallStatus.Invalid("BAD_REQUEST", tooMany).ToRpcException();
        var bytes = request.Count + (positions * RequestParts.PartBytes);
        return memory.Requests.TryTake(bytes, isSmall: bytes <= ByteBudget.SmallBytes) ? bytes : throw RequestsWait.ToRpcException();
    }

    protected override async Task<MessageBytes> CallAsync(Method method, MessageBytes request, ServerCallContext context)
    {
        var route = forwarding.RouteOf(method, request.Written);
        var requestBytes = request.Count + route.Parts.ObjectBytes;
        if (!memory.Requests.TryTake(requestBytes, isSmall: requestBytes <= ByteBudget.SmallBytes))
        {
            forwarding.RefusedAsBusy(method);
            return Refuse(RequestsWait, context);
        }
        try
        {
            var traceparent = RouterMetrics.TakesSpans ? context.RequestHeaders.GetValue(Spans.Header) : null;
            var deadlineMs = Deadlines.Of(method, context, options.Timeout);
            var forwarded = forwarding.CallAsync(
                UnsafeByteOperations.UnsafeWrap(request.Memory), route, traceparent, deadlineMs, context.Peer, this, context.CancellationToken);
            if (!forwarded.IsCompleted)
            {
                var work = forwarded.AsTask();
                if (!await _abandoned.EndsFirstAsync(work, context.CancellationToken).ConfigureAwait(false))
                {
                    _ = EndAbandonedAsync(work, method, requestBytes);
                    requestBytes = 0;
                    return Leave(context);
                }
                forwarded = new ValueTask<RoutedReply>(work);
            }
            var reply = await forwarded.ConfigureAwait(false);
            if (reply.IsCancelled)
                return Leave(context);
            return reply.Error is { } error ? Refuse(error, context) : Answer(request, reply, context);
        }
        finally
        {
            memory.Requests.GiveBack(requestBytes);
        }
    }

    /// <summary>Counts the request of a call until nothing uses it any more, although its caller has gone.</summary>
    private async Task EndAbandonedAsync(Task work, Method method, int requestBytes)
    {
        await work.ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        memory.Requests.GiveBack(requestBytes);
        if (work.Exception?.InnerException is { } failure)
            RouterLog.Unexpected(log, method, failure);
    }

    // The answer is written to the connection next, where it is counted as a response.
    private MessageBytes Answer(MessageBytes request, RoutedReply reply, ServerCallContext context)
    {
        // Only after an answer, because the request of a call that ended by its deadline may still be being sent.
        request.Return();
        if (reply.Response.Length > ByteBudget.SmallBytes && !memory.MayRespond(reply.Response.Length))
            return Refuse(RepliesWait, context);
        var response = MessageBytes.Rent();
        response.Append(reply.Response.Span);
        return response;
    }

    // Without details, because a change may go on: they would say whether it was applied. The call may still be answered, with the status of its deadline.
    private static MessageBytes Leave(ServerCallContext context)
    {
        context.Status = new Status((StatusCode)CallStatus.CallerGone.Code, CallStatus.CallerGone.Message);
        return MessageBytes.Rent();
    }

    // Does not throw, because refusals are ordinary and an exception costs more than the call.
    private static MessageBytes Refuse(Google.Rpc.Status error, ServerCallContext context)
    {
        context.Status = new Status((StatusCode)error.Code, error.Message);
        context.ResponseTrailers.Add(StatusDetails.Trailer, error.ToByteArray());
        return MessageBytes.Rent();
    }
}
