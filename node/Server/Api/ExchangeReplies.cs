// Answers arrive on any thread and are collected in messages; whoever adds the first one starts the loop that sends. A call whose answer is found while there
// is no space for it is refused before the answer is copied. The stream waits only for replies to be read: a call of a shard that already has its share of
// places or bytes is refused as busy. One lock covers places and replies: a call gives its place back in the step that adds its reply, so a caller that has the
// reply finds the place free, and the stream does not end in between.
using System.Diagnostics.CodeAnalysis;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Node.Runtime;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.V1;
using KvCluster.Wire;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Api;

/// <summary>The open calls of one exchange: what they hold until they are answered, and their replies until they are sent. Thread-safe.</summary>
internal sealed class ExchangeReplies(
    ExchangePlaces node, CallMemory memory, IServerStreamWriter<MessageBytes> responses, ILogger log, CancellationToken cancellationToken) : IThreadPoolWorkItem
{
    private readonly CallPlaces<ApiError> _places = new(node, memory.Requests, isFull: ApiErrors.Busy, isShort: ApiErrors.RequestsWait);
    private readonly Lock _gate = new();
    private readonly TaskCompletionSource _ended = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private readonly GatheredReplies _replies = new(memory.Replies);
    private readonly CancellationTokenSource _stopping = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
    private TaskCompletionSource? _room;
    private RpcException? _reason;
    private bool _isSending;
    private bool _isReadToEnd;
    private bool _isBroken;

    /// <summary>Is cancelled when the stream breaks or its call ends.</summary>
    public CancellationToken Broken => _stopping.Token;

    /// <summary>
    /// Completes when the caller has completed its side and every call is answered. Fails with an <see cref="RpcException"/> when the stream breaks.
    /// </summary>
    public Task Ended => _ended.Task;

    /// <summary>Takes a place if the shard's calls of this kind have one left, and bytes of the budget. Returns why it did not, or null.</summary>
    public ApiError? TryOpen(ShardId shard, Method method, int requestBytes, out CallPlace place)
    {
        lock (_gate)
            return _places.TryTake(shard, method.IsChange(), requestBytes, out place);
    }

    /// <summary>Whether there is space for the reply of another call, or the stream broke and needs none.</summary>
    public bool HasRoom()
    {
        lock (_gate)
            return HasRoomLocked();
    }

    /// <summary>Completes when there is space for the reply of another call; is cancelled if the stream breaks.</summary>
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

    private bool HasRoomLocked()
    {
        Invariant.CheckHeld(_gate);
        return _isBroken || _replies.HasRoom;
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

    private void EndIfDoneLocked()
    {
        Invariant.CheckHeld(_gate);
        if (_isReadToEnd && _places.Taken == 0 && !_isSending && _replies.IsEmpty)
            _ended.TrySetResult();
    }

    /// <summary>Ends the stream because its caller is gone. Returns why it broke: another reason if there was one before.</summary>
    public RpcException BreakWithoutCaller() => Break(new RpcException(new Status(StatusCode.Cancelled, "The caller went away.")));

    // Breaks the stream. Returns the first reason for which it broke.
    private RpcException Break(RpcException reason)
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
            return _reason;
        }
    }

    private ApiError? Add<T>(ulong id, in CallPlace place, StatusCode code, int contentField, scoped in T content)
        where T : IAnswer, allows ref struct
    {
        if (TryAdd(id, place, code, contentField, content))
            return null;
        var refusal = ApiErrors.RepliesWait;
        TryAdd(id, place, refusal.Code, Reply.StatusFieldNumber, new EncodedAnswer(refusal.ToStatus().ToByteArray()));
        return refusal;
    }

    // Adds a reply. Returns false, with nothing done, if there is no space for it. The outcome of a change always has space.
    private bool TryAdd<T>(ulong id, in CallPlace place, StatusCode code, int contentField, scoped in T content, bool isOutcome = false)
        where T : IAnswer, allows ref struct
    {
        var contentBytes = content.Size;
        var replyBytes = WireWriter.VarintFieldSize(id) + WireWriter.VarintFieldSize((uint)code) + WireWriter.BytesFieldSize(contentBytes);
        var fieldBytes = WireWriter.BytesFieldSize(replyBytes);
        lock (_gate)
        {
            if (!_isBroken && isOutcome)
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
            BreakWithoutCaller();
        }
        catch (Exception failure)
        {
            // A bug. It ends this stream. If it were not caught here, it would end the process.
            LoopFailures.Count();
            CallFailures.SendingFailed(log, failure);
            Break(ApiErrors.Internal(failure, isChange: true).ToStatus().ToRpcException());
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

    /// <summary>Takes the outcome of one call.</summary>
    internal readonly struct Sink(ExchangeReplies replies, ulong id, CallPlace place, int replyBytesMax) : IReplySink
    {
        public int ReplyBytesMax => replyBytesMax;

        public ApiError? Answer<T>(scoped in T answer)
            where T : IAnswer, allows ref struct
        {
            if (answer.Size <= replyBytesMax)
                return replies.Add(id, place, StatusCode.OK, Reply.ResponseFieldNumber, answer);
            var refusal = ApiErrors.ReplyLarge(answer.Size);
            Refuse(refusal);
            return refusal;
        }

        public void AnswerChange<T>(scoped in T answer)
            where T : IAnswer, allows ref struct => replies.TryAdd(id, place, StatusCode.OK, Reply.ResponseFieldNumber, answer, isOutcome: true);

        public void Refuse(ApiError refusal) =>
            replies.Add(id, place, refusal.Code, Reply.StatusFieldNumber, new EncodedAnswer(refusal.ToStatus().ToByteArray()));
    }
}
