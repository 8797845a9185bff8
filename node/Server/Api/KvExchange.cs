// One stream of calls. Requests are read and started by one loop, in order, so that changes keep the order in which they came. Answers arrive on any thread and
// are collected in messages; whoever adds the first one starts the loop that sends. Both loops end with the stream.
// Many callers may share the stream, as on a router's connection. What one of them asks for may delay the stream or be refused, but never breaks it. No call is
// started while 8 MiB of replies are not written. A call whose answer is found while there is no space for it is refused before the answer is copied. The
// stream waits only for replies to be read: a call of a shard that already has its share of places or bytes is refused as busy. The loop itself reads trees
// whose pages are in memory; while the disk is slow they are read elsewhere (InlineReads).
using System.Diagnostics.CodeAnalysis;
using System.Text;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Node.Runtime;
using KvCluster.Node.Telemetry;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.Telemetry;
using KvCluster.V1;
using KvCluster.Wire;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Api;

/// <summary>Runs the calls of one exchange.</summary>
internal sealed class KvExchange(
    KvCalls calls, ExchangePlaces node, CallMemory memory, TimeProvider clock, IServerStreamWriter<MessageBytes> responses, ILogger log, CancellationToken cancellationToken)
    : IThreadPoolWorkItem
{
    /// <summary>
    /// Maximum number of unanswered calls: a quarter of a shard's queue, so that one stream cannot fill it. A call whose shard has its share of them is
    /// refused as busy. Reading continues, because otherwise the changes of one blocked shard would delay the reads of all.
    /// </summary>
    private const int OpenCallsMax = 4_096;

    private readonly FairPlaces _places = new(OpenCallsMax);
    private readonly FairPlaces.Share _heldOfNode = new();
    private readonly CallWaits _waits = new();
    private readonly InlineReads _inline = new(clock.TimestampFrequency, DiskWaits.OfThisThread);
    private readonly Lock _gate = new();
    private readonly TaskCompletionSource _ended = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private readonly GatheredReplies _replies = new(memory.Replies);
    private BudgetShare _requests = new(memory.Requests);
    private readonly CancellationTokenSource _stopping = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
    private TaskCompletionSource? _room;
    private RpcException? _reason;
    private bool _isSending;
    private bool _isReadToEnd;
    private bool _isBroken;

    /// <summary>The caller's connection; null if there is none.</summary>
    public ServerCallContext? Caller { get; init; }

    /// <summary>Completes when the caller has completed its side and every call is answered.</summary>
    /// <exception cref="RpcException">The stream broke. Calls that were started continue without an answer.</exception>
    public async Task RunAsync(IAsyncStreamReader<MessageBytes> requests)
    {
        try
        {
            while (await requests.MoveNext(_stopping.Token).ConfigureAwait(false))
            {
                var message = requests.Current;
                await StartAllAsync(message).ConfigureAwait(false);
                message.Return();
            }
        }
        catch
        {
            Break(CallerGone());
            // If it broke for another reason first, this exception may be a consequence of that.
            if (_reason is { StatusCode: not StatusCode.Cancelled })
                throw _reason;
            throw;
        }
        CompleteReading();
        await _ended.Task.ConfigureAwait(false);
    }

    async void IThreadPoolWorkItem.Execute()
    {
        try
        {
            while (TryTake(out var gathered))
            {
                var bytes = gathered.Count;
                if (!await StalledWrite.EndsAsync(responses.WriteAsync(gathered), memory.Replies).ConfigureAwait(false))
                {
                    Break(ApiErrors.NotRead.ToStatus().ToRpcException());
                    return;
                }
                Written(bytes);
            }
        }
        catch (Exception failure) when (failure is RpcException or InvalidOperationException or OperationCanceledException)
        {
            // The caller is gone, or the call has ended. The reading loop sees the same and reports it.
            Break(CallerGone());
        }
        catch (Exception failure)
        {
            // A bug. It ends this stream. If it were not caught here, it would end the process.
            LoopFailures.Count();
            CallFailures.SendingFailed(log, failure);
            Break(ApiErrors.Internal(failure, isChange: true).ToStatus().ToRpcException());
        }
    }

    private async ValueTask StartAllAsync(MessageBytes message)
    {
        // The arrival time of all its calls, including those that have to wait.
        var arrived = clock.GetTimestamp();
        await RoomAsync().ConfigureAwait(false);
        for (var left = message.Count; StartSome(message.Written, arrived, ref left);)
            await RoomAsync().ConfigureAwait(false);
    }

    // Returns true if there is no space for the remaining calls now.
    private bool StartSome(ReadOnlySpan<byte> message, long arrived, ref int left)
    {
        var reader = new WireReader(message[^left..]);
        _inline.Starts(arrived);
        try
        {
            for (int field; (field = reader.ReadField()) != 0;)
            {
                if (field == ExchangeRequest.CancelledFieldNumber)
                {
                    Cancel(ref reader);
                    continue;
                }
                if (field != ExchangeRequest.CallsFieldNumber)
                {
                    reader.Skip();
                    continue;
                }
                var hasRoom = Start(reader.ReadBytes(), arrived);
                left = reader.Left;
                if (!hasRoom && left > 0)
                    return true;
            }
            return false;
        }
        catch (MalformedMessageException)
        {
            throw new RpcException(new Status(StatusCode.InvalidArgument, MalformedMessageException.StreamText));
        }
        finally
        {
            _inline.Ended(clock.GetTimestamp());
        }
    }

    private void Cancel(ref WireReader reader)
    {
        if (!reader.IsBytes)
        {
            _waits.Cancel(reader.ReadUInt64());
            return;
        }
        var packed = new WireReader(reader.ReadBytes());
        while (packed.Left > 0)
            _waits.Cancel(packed.ReadVarint());
    }

    // Returns whether there is space for another call.
    private bool Start(ReadOnlySpan<byte> call, long arrived)
    {
        var head = CallHead.Read(call);
        var method = head.Method;
        var watched = calls.Watches ? arrived : 0;
        var now = clock.GetTimestamp();
        var target = new CallTarget(head.Shard, head.Generation, head.TimeoutMs == 0 ? 0 : arrived + (head.TimeoutMs * clock.TimestampFrequency / 1_000), cancellationToken)
        {
            Caller = Caller,
            Id = head.Id,
            Waits = _waits,
            ArrivedTimestamp = watched,
            ReadsElsewhere = !_inline.Begun(now),
            Span = head.Traceparent.Length != Spans.HeaderLength || watched == 0 ? null : NodeTraces.StartCall(method, Encoding.ASCII.GetString(head.Traceparent)),
        };
        var refusal = TryOpen(head.Generation == 0 ? 0 : head.Shard, method, head.Request.Length, out var place);
        if (refusal is not null)
            calls.Refused(method, refusal);
        var sink = new Sink(this, head.Id, place, head.ReplyBytesMax is 0 or > int.MaxValue ? int.MaxValue : (int)head.ReplyBytesMax);
        if (refusal is null && target.DeadlineTimestamp != 0 && now > target.DeadlineTimestamp)
            refusal = ApiErrors.DeadlinePassed;
        if (refusal is not null)
        {
            sink.Refuse(refusal);
            return HasRoom();
        }
        try
        {
            var running = calls.StartAsync(method, head.Request, target, sink);
            if (!running.IsCompletedSuccessfully)
                _ = EndAsync(running, method, target, sink);
        }
        catch (Exception failure)
        {
            Fail(failure, method, target, sink);
        }
        return HasRoom();
    }

    // The call's outcome goes to the sink.
    private async Task EndAsync(ValueTask running, Method method, CallTarget target, Sink sink)
    {
        try
        {
            await running.ConfigureAwait(false);
        }
        catch (Exception failure)
        {
            Fail(failure, method, target, sink);
        }
    }

    // An exception without an error mapping is a bug. Only the call's own caller is told; the stream's other calls are unaffected.
    private void Fail(Exception failure, Method method, in CallTarget target, Sink sink)
    {
        CallFailures.Unexpected(log, method, failure);
        sink.Refuse(calls.Failed(failure, method, target));
    }

    // Takes a place if the shard's calls of this kind have one left, and bytes of the budget.
    private ApiError? TryOpen(uint shard, Method method, int requestBytes, out Place place)
    {
        place = default;
        var isChange = KvCalls.IsChange(method);
        lock (_gate)
        {
            if (!_places.TryTake(shard, isChange, requestBytes, out var ofStream))
                return ApiErrors.Busy;
            if (!node.TryTake(_heldOfNode, shard, isChange, requestBytes, out var ofNode))
            {
                _places.Return(ofStream, requestBytes);
                return ApiErrors.Busy;
            }
            place = new Place(ofStream, ofNode, requestBytes);
            if (_requests.TryUse(requestBytes))
                return null;
            ReturnLocked(place);
            place = default;
            return ApiErrors.RequestsWait;
        }
    }

    private void ReturnLocked(in Place place)
    {
        Invariant.CheckHeld(_gate);
        _places.Return(place.OfStream!, place.RequestBytes);
        node.Return(_heldOfNode, place.OfNode!, place.RequestBytes);
    }

    private bool HasRoom()
    {
        lock (_gate)
            return HasRoomLocked();
    }

    private Task RoomAsync()
    {
        lock (_gate)
        {
            if (HasRoomLocked())
                return Task.CompletedTask;
            _room = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
            return _room.Task.WaitAsync(_stopping.Token);
        }
    }

    private bool HasRoomLocked()
    {
        Invariant.CheckHeld(_gate);
        return _isBroken || _replies.HasRoom;
    }

    private void CompleteReading()
    {
        lock (_gate)
        {
            _isReadToEnd = true;
            EndIfDoneLocked();
        }
    }

    private void EndIfDoneLocked()
    {
        Invariant.CheckHeld(_gate);
        if (_isReadToEnd && _places.Taken == 0 && !_isSending && _replies.IsEmpty)
            _ended.TrySetResult();
    }

    private static RpcException CallerGone() => new(new Status(StatusCode.Cancelled, "The caller went away."));

    private void Break(RpcException reason)
    {
        lock (_gate)
        {
            _isBroken = true;
            _isSending = false;
            _replies.Clear();
            _room?.TrySetResult();
            _reason ??= reason;
            _ended.TrySetException(_reason);
            // Callbacks of the cancellation run on another thread.
            _ = _stopping.CancelAsync();
        }
    }

    private bool TryTake([NotNullWhen(true)] out MessageBytes? gathered)
    {
        lock (_gate)
        {
            gathered = null;
            if (!_isBroken && _replies.TryTake(out gathered))
                return true;
            _isSending = false;
            EndIfDoneLocked();
            return false;
        }
    }

    private void Written(int bytes)
    {
        lock (_gate)
        {
            if (!_isBroken)
                _replies.Written(bytes);
            GiveRoomLocked();
        }
    }

    private void GiveRoomLocked()
    {
        Invariant.CheckHeld(_gate);
        if (_room is not null && HasRoomLocked())
            _room.TrySetResult();
    }

    private ApiError? Add<T>(ulong id, in Place place, StatusCode code, int contentField, scoped in T content)
        where T : IAnswer, allows ref struct
    {
        if (TryAdd(id, place, code, contentField, content))
            return null;
        var refusal = ApiErrors.RepliesWait;
        TryAdd(id, place, refusal.Code, Reply.StatusFieldNumber, new EncodedAnswer(refusal.ToStatus().ToByteArray()));
        return refusal;
    }

    // False if there is no space for it; nothing was done then.
    private bool TryAdd<T>(ulong id, in Place place, StatusCode code, int contentField, scoped in T content)
        where T : IAnswer, allows ref struct
    {
        var contentBytes = content.Size;
        var replyBytes = WireWriter.VarintFieldSize(id) + WireWriter.VarintFieldSize((uint)code) + WireWriter.BytesFieldSize(contentBytes);
        var fieldBytes = WireWriter.BytesFieldSize(replyBytes);
        lock (_gate)
        {
            if (!_isBroken && !_replies.TryUse(fieldBytes))
                return false;
            if (place.OfStream is not null)
            {
                ReturnLocked(place);
                _requests.Free(place.RequestBytes);
            }
            if (_isBroken)
                return true;
            var writer = new WireWriter(_replies.Append(fieldBytes));
            writer.BytesHeader(ExchangeResponse.RepliesFieldNumber, replyBytes);
            writer.VarintField(Reply.IdFieldNumber, id);
            writer.VarintField(Reply.CodeFieldNumber, (uint)code);
            writer.BytesHeader(contentField, contentBytes);
            content.WriteTo(writer.Take(contentBytes));
            GiveRoomLocked();
            if (_isSending)
                return true;
            _isSending = true;
        }
        ThreadPool.UnsafeQueueUserWorkItem(this, preferLocal: false);
        return true;
    }

    /// <summary>What a call holds; default if it was refused.</summary>
    private readonly record struct Place(FairPlaces.Share? OfStream, FairPlaces.Share? OfNode, int RequestBytes);

    private readonly struct Sink(KvExchange exchange, ulong id, Place place, int replyBytesMax) : IReplySink
    {
        public int ReplyBytesMax => replyBytesMax;

        public ApiError? Answer<T>(scoped in T answer)
            where T : IAnswer, allows ref struct
        {
            if (answer.Size <= replyBytesMax)
                return exchange.Add(id, place, StatusCode.OK, Reply.ResponseFieldNumber, answer);
            var refusal = ApiErrors.ReplyLarge(answer.Size);
            Refuse(refusal);
            return refusal;
        }

        public void Refuse(ApiError refusal) =>
            exchange.Add(id, place, refusal.Code, Reply.StatusFieldNumber, new EncodedAnswer(refusal.ToStatus().ToByteArray()));
    }
}
