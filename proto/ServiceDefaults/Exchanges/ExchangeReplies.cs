// Replies arrive on any thread and are collected in messages; whoever adds the first one starts the loop that sends. A call whose response is found while there
// is no space for it is refused before the response is copied. The stream waits only for replies to be read: a call of a shard that already has its share of
// places or bytes is refused as busy. One lock covers places and replies: a call gives its place back in the step that adds its reply, so a caller that has the
// reply finds the place free, and the stream does not end in between. The handler is never called under that lock, and may hold a lock of its own.
using System.Diagnostics.CodeAnalysis;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.ServiceDefaults.Exchanges;

/// <summary>The open calls of one exchange: what they hold until they are answered, and their replies until they are sent. Thread-safe.</summary>
internal sealed class ExchangeReplies(
    IExchangeHandler handler, ExchangePlaces process, CallMemory memory, IServerStreamWriter<MessageBytes> responses, CancellationToken cancellationToken)
    : IThreadPoolWorkItem
{
    private readonly CallPlaces _places = new(process, memory.Requests);
    private readonly Lock _gate = new();
    private readonly TaskCompletionSource _ended = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private readonly GatheredReplies _replies = new(memory.Replies);
    private readonly CancellationTokenSource _stopping = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
    private TaskCompletionSource? _room;
    private Exception? _reason;
    private bool _isSending;
    private bool _isReadToEnd;
    private bool _isBroken;

    /// <summary>Is cancelled when the stream breaks or its call ends.</summary>
    public CancellationToken Broken => _stopping.Token;

    /// <summary>
    /// Completes when the caller has completed its side, every call is answered and the replies are written. Fails with the reason when the stream breaks.
    /// </summary>
    public Task Ended => _ended.Task;

    /// <summary>Number of bytes of the replies that are not written.</summary>
    public long WaitingBytes
    {
        get
        {
            lock (_gate)
                return _replies.Bytes;
        }
    }

    /// <summary>Takes a place if the shard's calls of this kind have one left, and bytes of the budget.</summary>
    public PlaceOutcome TryOpen(ShardId shard, bool isChange, int requestBytes, out CallPlace place)
    {
        lock (_gate)
            return _places.TryTake(shard, isChange, requestBytes, out place);
    }

    /// <summary>Whether there is space for the reply of another call. There is none once the stream has broken or its caller has gone.</summary>
    public bool HasRoom()
    {
        lock (_gate)
            return HasRoomLocked();
    }

    /// <summary>Completes when there is space for the reply of another call; is cancelled if the stream breaks or has broken.</summary>
    public Task RoomAsync()
    {
        lock (_gate)
        {
            if (HasRoomLocked())
                return Task.CompletedTask;
            _room = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
            return _room.Task.WaitAsync(_stopping.Token);
        }
    }

    /// <summary>Answers a call. If there is no space for the response, it is refused instead, and this returns false.</summary>
    public bool TryAnswer<T>(ulong id, in CallPlace place, scoped in T response)
        where T : IAnswer, allows ref struct
    {
        if (TryAdd(id, place, StatusCode.OK, Reply.ResponseFieldNumber, response))
            return true;
        Refuse(id, place, handler.RepliesWait);
        return false;
    }

    /// <summary>
    /// Answers a change that was applied. It is told however little space is left, because a refusal would say that nothing was applied.
    /// </summary>
    public void AnswerChange<T>(ulong id, in CallPlace place, scoped in T response)
        where T : IAnswer, allows ref struct => TryAdd(id, place, StatusCode.OK, Reply.ResponseFieldNumber, response, isAlwaysTold: true);

    /// <summary>Refuses a call.</summary>
    /// <param name="id">Its number.</param>
    /// <param name="place">Its place; the default if it has none.</param>
    /// <param name="refusal">Why.</param>
    public void Refuse(ulong id, in CallPlace place, Google.Rpc.Status refusal) =>
        TryAdd(id, place, (StatusCode)refusal.Code, Reply.StatusFieldNumber, new EncodedAnswer(refusal.ToByteArray()), isAlwaysTold: true);

    /// <summary>A call has ended without a reply, because its stream broke.</summary>
    public void EndUnanswered(in CallPlace place)
    {
        lock (_gate)
            _places.Return(place);
    }

    /// <summary>No further call will be opened: the stream ends when every open one is answered and the replies are written.</summary>
    public void CompleteReading()
    {
        lock (_gate)
        {
            _isReadToEnd = true;
            EndIfDoneLocked();
        }
    }

    /// <summary>Ends the stream because its caller is gone. Returns why it broke: another reason if there was one before.</summary>
    public Exception BreakWithoutCaller() => Break(new RpcException(new Status(StatusCode.Cancelled, "The caller went away.")));

    /// <summary>Breaks the stream. Returns the first reason for which it broke.</summary>
    public Exception Break(Exception reason)
    {
        lock (_gate)
        {
            _isBroken = true;
            _isSending = false;
            _replies.Clear();
            _reason ??= reason;
            _ended.TrySetException(_reason);
            // Callbacks of the cancellation run on another thread.
            _ = _stopping.CancelAsync();
            return _reason;
        }
    }

    private bool HasRoomLocked()
    {
        Invariant.CheckHeld(_gate);
        return !_stopping.IsCancellationRequested && _replies.HasRoom;
    }

    private void EndIfDoneLocked()
    {
        Invariant.CheckHeld(_gate);
        if (_isReadToEnd && _places.Taken == 0 && !_isSending && _replies.IsEmpty)
            _ended.TrySetResult();
    }

    // Adds a reply. Returns false, with nothing done, if there is no space for it.
    private bool TryAdd<T>(ulong id, in CallPlace place, StatusCode code, int contentField, scoped in T content, bool isAlwaysTold = false)
        where T : IAnswer, allows ref struct
    {
        var contentBytes = content.Size;
        var replyBytes = WireWriter.VarintFieldSize(id) + WireWriter.VarintFieldSize((uint)code) + WireWriter.BytesFieldSize(contentBytes);
        var fieldBytes = WireWriter.BytesFieldSize(replyBytes);
        lock (_gate)
        {
            if (!_isBroken && isAlwaysTold)
                _replies.Use(fieldBytes);
            else if (!_isBroken && !_replies.TryUse(fieldBytes))
                return false;
            _places.Return(place);
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
        if (!HeldSending.TryHold(this))
            ThreadPool.UnsafeQueueUserWorkItem(this, preferLocal: false);
        return true;
    }

    async void IThreadPoolWorkItem.Execute()
    {
        try
        {
            while (TryTake(out var gathered))
            {
                var bytes = gathered.Count;
                if (!await StalledWrite.EndsAsync(responses.WriteAsync(gathered), memory.Replies, Broken).ConfigureAwait(false))
                {
                    Break(handler.NotRead.ToRpcException());
                    return;
                }
                Written(bytes);
            }
        }
        catch (Exception failure) when (failure is RpcException or InvalidOperationException or OperationCanceledException)
        {
            // The caller is gone, or the call has ended. The reading loop sees the same and reports it.
            BreakWithoutCaller();
        }
        catch (Exception failure)
        {
            // A bug. It ends this stream. If it were not caught here, it would end the process.
            Break(handler.SendingFailed(failure));
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
        handler.Written();
    }

    private void GiveRoomLocked()
    {
        Invariant.CheckHeld(_gate);
        if (_room is not null && HasRoomLocked())
            _room.TrySetResult();
    }
}
