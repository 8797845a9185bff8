// One Exchange stream through a router. Each call is forwarded by its own key, and answers are gathered into messages as they arrive. The streams to the
// nodes are shared by all callers and always read, so the replies that one caller does not read are limited here. No further call is begun while
// replies wait to be written. The number of reads sent at once grows while their answers are small. An answer for which there is no room is dropped and its
// read refused. Nothing else makes the stream wait: shards share its places (FairPlaces), a call that finds none is refused as busy, and reads that may not
// be sent yet wait beside the stream, shard by shard.
using System.Diagnostics.CodeAnalysis;
using System.Text;
using System.Threading.Channels;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Client.Routing;
using KvCluster.Client.Transport;
using KvCluster.Router.Telemetry;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.Telemetry;
using KvCluster.V1;
using KvCluster.Wire;
using Method = KvCluster.V1.Method;

namespace KvCluster.Router.Api;

/// <summary>Runs the calls of one exchange. Started by one thread; answers arrive on any.</summary>
internal sealed class ExchangeProxy : IDisposable
{
    private const int OpenCallsMax = 4_096;
    private const int RepliesPerMessageMax = 512;

    /// <summary>Small replies are gathered until a message has this many bytes.</summary>
    private const int GatheredBytes = 256 << 10;

    /// <summary>The maximum size of a message with several replies, which is gRPC's default limit. A single reply may be larger.</summary>
    private const int MessageBytesMax = 4 << 20;

    /// <summary>While more bytes of replies than this wait to be written, no further call is begun.</summary>
    private const int WaitingBytesMax = 2 * MessageBytesMax;

    /// <summary>Beyond this, replies to reads that were already begun are dropped. It is twice the largest reply.</summary>
    private const int ReplyBytesMax = 32 << 20;

    /// <summary>Refusals and answers to changes must always be sent; they are smaller than this.</summary>
    private const int OutcomeBytesMax = 4 << 10;

    /// <summary>The memory that a reply takes as objects, besides its response.</summary>
    private const int ReplyOverheadBytes = 128;

    /// <summary>How many reads may be sent at once while nothing is known of their answers. Each small answer allows one more.</summary>
    private const int FirstReads = 16;

    private readonly Forwarding _forwarding;
    private readonly RouterOptions _options;
    private readonly CallMemory _memory;
    private readonly IServerStreamWriter<MessageBytes> _responses;
    private readonly ServerCallContext _context;
    private readonly CancellationTokenSource _broken;
    private readonly Lock _gate = new();
    private readonly Channel<Reply> _replies = Channel.CreateUnbounded<Reply>(new UnboundedChannelOptions { SingleReader = true });
    private readonly FairPlaces _places = new(OpenCallsMax);
    private readonly ExchangePlaces _process;
    private readonly FairPlaces.Share _heldOfProcess = new();
    private readonly Dictionary<ulong, OpenCall> _open = [];
    private readonly Stack<OpenCall> _pool = new();

    // At most one for each shard of the map.
    private readonly Dictionary<uint, ReadsOfShard> _reads = [];
    private BudgetShare _requestBytes;
    private BudgetShare _replyBytes;
    private readonly LinkedList<OpenCall.Hold> _holds = new();
    private long _heldBytes;
    private TaskCompletionSource? _room;
    private int _openReads;
    private int _waitingReads;
    private int _readsMax = FirstReads;
    private bool _isWaitingForMap;
    private bool _isBroken;

    public ExchangeProxy(
        Forwarding forwarding, RouterOptions options, ExchangePlaces process, CallMemory memory, IServerStreamWriter<MessageBytes> responses, ServerCallContext context)
    {
        _forwarding = forwarding;
        _options = options;
        _process = process;
        _memory = memory;
        _responses = responses;
        _context = context;
        _requestBytes = new BudgetShare(memory.Requests);
        _replyBytes = new BudgetShare(memory.Replies);
        _broken = CancellationTokenSource.CreateLinkedTokenSource(context.CancellationToken);
    }

    /// <summary>Runs until the caller has completed its side and every answer is written, or until the stream breaks.</summary>
    public async Task RunAsync(IAsyncStreamReader<MessageBytes> requests)
    {
        var sending = SendAsync();
        try
        {
            while (await requests.MoveNext(_broken.Token).ConfigureAwait(false))
                await StartAllAsync(requests.Current).ConfigureAwait(false);
            await WaitAsync(static exchange => exchange._places.Taken == 0).ConfigureAwait(false);
        }
        finally
        {
            _replies.Writer.TryComplete();
            await sending.ConfigureAwait(false);
        }
    }

    // Calls that are still in progress when the stream broke use the token later, so it is cancelled and not disposed.
    public void Dispose()
    {
        _broken.Cancel();
        lock (_gate)
        {
            _isBroken = true;
            _replyBytes.Free(_replyBytes.Used);
            foreach (var reads in _reads.Values)
            {
                while (reads.Waiting.First is { } first)
                {
                    reads.Waiting.RemoveFirst();
                    _waitingReads--;
                    EndLocked(first.Value, answer: null);
                }
            }
            foreach (var call in _open.Values)
                call.GiveUp();
        }
    }

    // A call may be two bytes of the message and is a hundred as an object, so the object is made only once it has its place.
    private async Task StartAllAsync(MessageBytes message)
    {
        var arrivedMs = Environment.TickCount64;
        for (var left = message.Count; left > 0;)
        {
            await WaitAsync(static exchange => exchange.HasRoomLocked()).ConfigureAwait(false);
            StartSome(message.Written, arrivedMs, ref left);
        }
        message.Return();
    }

    // As long as there is room. The rest of the message waits for more.
    private void StartSome(ReadOnlySpan<byte> message, long arrivedMs, ref int left)
    {
        var reader = new WireReader(message[^left..]);
        try
        {
            for (int field; (field = reader.ReadField()) != 0;)
            {
                if (field == ExchangeRequest.CancelledFieldNumber)
                {
                    CancelAll(ref reader);
                }
                else if (field != ExchangeRequest.CallsFieldNumber)
                {
                    reader.Skip();
                }
                else
                {
                    if (TryOpen(CallHead.Read(reader.ReadBytes()), arrivedMs, out var open))
                        _ = ForwardAsync(open);
                    left = reader.Left;
                    if (!HasRoom())
                        return;
                }
            }
            left = 0;
        }
        catch (MalformedMessageException)
        {
            throw new RpcException(new Status(StatusCode.InvalidArgument, MalformedMessageException.StreamText));
        }
    }

    private void CancelAll(ref WireReader reader)
    {
        if (!reader.IsBytes)
        {
            Cancel(reader.ReadUInt64());
            return;
        }
        var packed = new WireReader(reader.ReadBytes());
        while (packed.Left > 0)
            Cancel(packed.ReadVarint());
    }

    // Copies the bytes of the request.
    private static Call ToCall(scoped in CallHead call) => new()
    {
        Id = call.Id,
        Method = call.Method,
        TimeoutMs = call.TimeoutMs,
        Request = ByteString.CopyFrom(call.Request),
        Traceparent = call.Traceparent.Length == Spans.HeaderLength && RouterMetrics.TakesSpans ? Encoding.ASCII.GetString(call.Traceparent) : "",
    };

    private static bool IsRead(Method method) => method is Method.Get or Method.GetMany;

    private bool HasRoom()
    {
        lock (_gate)
            return HasRoomLocked();
    }

    private bool HasRoomLocked() =>
        _replyBytes.Used < (_memory.Replies.IsShort ? 1 : WaitingBytesMax);

    // Only the reading loop waits here.
    private async ValueTask WaitAsync(Func<ExchangeProxy, bool> isThere)
    {
        while (true)
        {
            Task changed;
            lock (_gate)
            {
                if (isThere(this))
                    return;
                _room = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
                changed = _room.Task;
            }
            await changed.WaitAsync(_broken.Token).ConfigureAwait(false);
        }
    }

    // Returns false if the call has been answered or waits for others.
    private bool TryOpen(scoped in CallHead call, long arrivedMs, [NotNullWhen(true)] out OpenCall? open)
    {
        open = null;
        var shard = _forwarding.ShardOf(call.Method, call.Request);
        var (isRead, requestBytes) = (IsRead(call.Method), call.Request.Length + RequestKeys.ObjectBytes(call.Method, call.Request));
        lock (_gate)
        {
            if (!TryTakePlaceLocked(!isRead, requestBytes, shard, out var ofStream, out var ofProcess))
            {
                AddLocked(Refused(call.Id, "The shard has reached the router's limit of open calls for one shard; nothing was applied. Try again."));
                return false;
            }
            if (!_requestBytes.TryUse(requestBytes))
            {
                ReturnPlaceLocked(requestBytes, ofStream, ofProcess);
                AddLocked(Refused(call.Id, "The router has reached its limit of memory for requests; nothing was applied. Try again."));
                return false;
            }
            open = _pool.TryPop(out var pooled) ? pooled : new OpenCall(this);
            // If the caller uses one id for two open calls, which it must not, the second can be cancelled only with the stream.
            open.Begin(ToCall(call), requestBytes, arrivedMs, ofStream, ofProcess, _open.TryAdd(call.Id, open) ? null : _broken.Token);
            if (!isRead)
                return true;
            open.Reads = ReadsOfLocked(shard);
            if (open.Reads.Waiting.Count == 0 && MayGoOutLocked(open.Reads))
            {
                GoOutLocked(open.Reads);
                return true;
            }
            open.Reads.Waiting.AddLast(open.Place);
            _waitingReads++;
            if (shard == RouteTable.NoShard && !_isWaitingForMap && !_forwarding.HasMap)
            {
                _isWaitingForMap = true;
                _ = RegroupAsync();
            }
            return false;
        }
    }

    // Without a map the shards of reads are unknown, and all wait as those of one shard. Once there is a map they are regrouped by shard, because one shard
    // may be stuck.
    private async Task RegroupAsync()
    {
        try
        {
            if (!await _forwarding.WaitForMapAsync(_broken.Token).ConfigureAwait(false))
                return;
        }
        catch (OperationCanceledException)
        {
            return;
        }
        lock (_gate)
        {
            _isWaitingForMap = false;
            if (_isBroken)
                return;
            // Each is moved once. A malformed request stays in the group of unknown shards, behind the others.
            var unknown = ReadsOfLocked(RouteTable.NoShard).Waiting;
            for (var left = unknown.Count; left > 0; left--)
            {
                var place = unknown.First!;
                unknown.RemoveFirst();
                var call = place.Value.Call;
                place.Value.Reads = ReadsOfLocked(_forwarding.ShardOf(call.Method, call.Request.Span));
                place.Value.Reads.Waiting.AddLast(place);
            }
            LetReadsOutLocked();
        }
    }

    private bool TryTakePlaceLocked(bool isChange, int bytes, uint shard, out FairPlaces.Share ofStream, out FairPlaces.Share ofProcess)
    {
        ofProcess = null!;
        if (!_places.TryTake(shard, isChange, bytes, out ofStream))
            return false;
        if (_process.TryTake(_heldOfProcess, shard, isChange, bytes, out ofProcess))
            return true;
        _places.Return(ofStream, bytes);
        return false;
    }

    private void ReturnPlaceLocked(int bytes, FairPlaces.Share ofStream, FairPlaces.Share ofProcess)
    {
        _places.Return(ofStream, bytes);
        _process.Return(_heldOfProcess, ofProcess, bytes);
    }

    private ReadsOfShard ReadsOfLocked(uint shard)
    {
        if (!_reads.TryGetValue(shard, out var reads))
            _reads[shard] = reads = new ReadsOfShard();
        return reads;
    }

    // A shard that is alone may use all reads of the stream. A stuck shard leaves half as many to the others, and each shard may always have one.
    private bool MayGoOutLocked(ReadsOfShard reads) => reads.Open == 0 || reads.Open < (2 * _readsMax) - _openReads;

    private void GoOutLocked(ReadsOfShard reads)
    {
        reads.Open++;
        _openReads++;
    }

    // The caller cancelled it. Continuations of the cancellation run on other threads.
    private void Cancel(ulong id)
    {
        lock (_gate)
        {
            if (!_open.TryGetValue(id, out var open))
                return;
            if (open.Place.List is not { } waiting)
            {
                open.GiveUp();
                return;
            }
            waiting.Remove(open.Place);
            _waitingReads--;
            EndLocked(open, GivenUp(open.Call));
        }
    }

    // Never throws. A failure ends the stream through the sender.
    private async Task ForwardAsync(OpenCall open)
    {
        var call = open.Call;
        var waitMs = call.TimeoutMs == 0 ? (long)_options.Timeout.TotalMilliseconds : call.TimeoutMs;
        Reply? answer = null;
        try
        {
            var reply = await _forwarding.CallAsync(call.Method, call.Request, call.Traceparent, open.ArrivedMs + waitMs, _context, open, open.Token).ConfigureAwait(false);
            answer = reply.Error is null
                ? new Reply { Id = call.Id, Response = reply.Response }
                : new Reply { Id = call.Id, Code = reply.Error.Code, Status = reply.Error.ToByteString() };
        }
        catch (OperationCanceledException) when (!_broken.IsCancellationRequested)
        {
            answer = GivenUp(call);
        }
        catch (Exception failure)
        {
            _replies.Writer.TryComplete(failure);
        }
        Close(open, answer);
    }

    private void Close(OpenCall open, Reply? answer)
    {
        lock (_gate)
        {
            if (open.Reads is { } reads)
            {
                reads.Open--;
                _openReads--;
                AdaptLocked(answer?.Response.Length ?? 0);
            }
            // From here on the answer is counted instead.
            GiveBackLocked(open);
            EndLocked(open, answer);
            LetHoldsInLocked();
            if (_waitingReads > 0)
                LetReadsOutLocked();
        }
    }

    private void EndLocked(OpenCall open, Reply? answer)
    {
        _requestBytes.Free(open.RequestBytes);
        ReturnPlaceLocked(open.RequestBytes, open.OfStream, open.OfProcess);
        if (_open.TryGetValue(open.Call.Id, out var found) && found == open)
            _open.Remove(open.Call.Id);
        if (answer is not null && !_isBroken)
            AddLocked(answer);
        if (open.TryReset())
            _pool.Push(open);
        _room?.TrySetResult();
    }

    // Limits the reads sent at once so that their answers, if they are as large as this one, fit in what a stream may hold.
    private void AdaptLocked(int responseBytes) => _readsMax = responseBytes <= ByteBudget.SmallBytes
        ? Math.Min(_readsMax + 1, OpenCallsMax)
        : Math.Clamp(ReplyBytesMax / 2 / responseBytes, 1, _readsMax);

    // Sends as many reads of each shard as it may have. They run on other threads, because one that ends at once lets the next one go.
    private void LetReadsOutLocked()
    {
        foreach (var reads in _reads.Values)
        {
            while (reads.Waiting.First is { } first && MayGoOutLocked(reads))
            {
                reads.Waiting.RemoveFirst();
                _waitingReads--;
                GoOutLocked(reads);
                ThreadPool.UnsafeQueueUserWorkItem(static work => _ = work.Exchange.ForwardAsync(work.Open), (Exchange: this, Open: first.Value), preferLocal: true);
            }
        }
    }

    // Served in the order of the calls, so that small ones do not delay the largest.
    private async ValueTask<bool> HoldAsync(OpenCall open, int bytes, long deadlineMs, CancellationToken cancellationToken)
    {
        LinkedListNode<OpenCall.Hold> hold;
        lock (_gate)
        {
            // A response that has grown needs more room. If the call kept its old room, it would wait for itself.
            GiveBackLocked(open);
            hold = _holds.AddLast(new OpenCall.Hold(open, bytes + ReplyOverheadBytes));
            LetHoldsInLocked();
        }
        try
        {
            var left = Math.Clamp(deadlineMs - Environment.TickCount64, 0, int.MaxValue);
            await hold.Value.Task.WaitAsync(TimeSpan.FromMilliseconds(left), cancellationToken).ConfigureAwait(false);
            return true;
        }
        catch (TimeoutException)
        {
            return false;
        }
        finally
        {
            lock (_gate)
            {
                // Room that it was given nevertheless is returned with the call.
                if (hold.List is not null)
                {
                    _holds.Remove(hold);
                    LetHoldsInLocked();
                }
            }
        }
    }

    private void Release(OpenCall open)
    {
        lock (_gate)
        {
            GiveBackLocked(open);
            LetHoldsInLocked();
        }
    }

    private void GiveBackLocked(OpenCall open)
    {
        _heldBytes -= open.HeldBytes;
        open.HeldBytes = 0;
    }

    // The rest of the limit is left to small answers that arrive meanwhile.
    private void LetHoldsInLocked()
    {
        while (_holds.First is { } first)
        {
            var held = _heldBytes + _replyBytes.Used;
            if (held > 0 && held + first.Value.Bytes > ReplyBytesMax - WaitingBytesMax)
                return;
            _holds.RemoveFirst();
            first.Value.Open.HeldBytes += first.Value.Bytes;
            _heldBytes += first.Value.Bytes;
            first.Value.SetResult();
        }
    }

    private static Reply GivenUp(Call call)
    {
        var status = IsRead(call.Method)
            ? CallStatus.Create(StatusCode.Cancelled, "CANCELLED", "The caller cancelled the call.", "no")
            : CallStatus.Create(StatusCode.Cancelled, "CANCELLED", "The caller cancelled the call; the change may have been applied.", "unknown");
        return new Reply { Id = call.Id, Code = status.Code, Status = status.ToByteString() };
    }

    private void AddLocked(Reply reply)
    {
        var bytes = BytesOf(reply);
        if (bytes <= OutcomeBytesMax)
        {
            _replyBytes.Use(bytes);
        }
        else if (!((_replyBytes.Used == 0 || bytes <= ByteBudget.SmallBytes || _replyBytes.Used + bytes <= ReplyBytesMax) && _replyBytes.TryUse(bytes)))
        {
            reply = Refused(reply.Id, "The router has reached its limit of memory for unread replies. Try again.");
            _replyBytes.Use(BytesOf(reply));
        }
        _replies.Writer.TryWrite(reply);
    }

    private static Reply Refused(ulong id, string message)
    {
        var status = CallStatus.Create(StatusCode.Unavailable, "BUSY", message, "no");
        return new Reply { Id = id, Code = status.Code, Status = status.ToByteString() };
    }

    private static int BytesOf(Reply reply) => reply.Response.Length + reply.Status.Length + ReplyOverheadBytes;

    private async Task SendAsync()
    {
        try
        {
            while (await _replies.Reader.WaitToReadAsync(_broken.Token).ConfigureAwait(false))
            {
                var bytes = 0;
                var message = Gather(ref bytes);
                if (!await StalledWrite.EndsAsync(_responses.WriteAsync(message), _memory.Replies).ConfigureAwait(false))
                {
                    throw CallStatus.Create(
                        StatusCode.ResourceExhausted, "NOT_READ", "The caller does not read the replies that it requested. Unanswered calls of the stream may have been applied.", "unknown").ToRpcException();
                }
                lock (_gate)
                {
                    if (!_isBroken)
                        _replyBytes.Free(bytes);
                    LetHoldsInLocked();
                    _room?.TrySetResult();
                }
            }
        }
        finally
        {
            // The reader and those that wait for a place then stop too.
            await _broken.CancelAsync().ConfigureAwait(false);
        }
    }

    private MessageBytes Gather(ref int bytes)
    {
        var gathered = new ExchangeResponse();
        while (bytes < GatheredBytes && gathered.Replies.Count < RepliesPerMessageMax && _replies.Reader.TryPeek(out var next))
        {
            if (bytes > 0 && bytes + BytesOf(next) > MessageBytesMax)
                break;
            _replies.Reader.TryRead(out _);
            gathered.Replies.Add(next);
            bytes += BytesOf(next);
        }
        var message = MessageBytes.Rent();
        gathered.WriteTo(message.Append(gathered.CalculateSize()));
        return message;
    }

    /// <summary>The reads of one shard: the number sent, and those that wait to be sent.</summary>
    private sealed class ReadsOfShard
    {
        public int Open { get; set; }

        public LinkedList<OpenCall> Waiting { get; } = new();
    }

    /// <summary>One call until its answer. Used under the gate, except for its token.</summary>
    private sealed class OpenCall(ExchangeProxy exchange) : IReplyRoom
    {
        private readonly CancellationTokenSource _givenUp = new();
        private LinkedListNode<OpenCall>? _place;

        public Call Call { get; private set; } = null!;

        /// <summary>The bytes that are counted for its request.</summary>
        public int RequestBytes { get; private set; }

        public long ArrivedMs { get; private set; }

        public FairPlaces.Share OfStream { get; private set; } = null!;

        public FairPlaces.Share OfProcess { get; private set; } = null!;

        /// <summary>Cancelled when nobody waits for the answer any more.</summary>
        public CancellationToken Token { get; private set; }

        /// <summary>For a read: the reads of its shard.</summary>
        public ReadsOfShard? Reads { get; set; }

        /// <summary>Its place in the list of waiting reads; in no list if it was sent.</summary>
        public LinkedListNode<OpenCall> Place => _place ??= new LinkedListNode<OpenCall>(this);

        /// <summary>The room that the stream keeps for its answer.</summary>
        public int HeldBytes { get; set; }

        public ValueTask<bool> HoldAsync(int bytes, long deadlineMs, CancellationToken cancellationToken) => exchange.HoldAsync(this, bytes, deadlineMs, cancellationToken);

        public void Release() => exchange.Release(this);

        // An answer for which the process has no room is dropped when it arrives.
        public bool MayRespond(int bytes) => true;

        public void Begin(Call call, int requestBytes, long arrivedMs, FairPlaces.Share ofStream, FairPlaces.Share ofProcess, CancellationToken? other) =>
            (Call, RequestBytes, ArrivedMs, OfStream, OfProcess, Token) = (call, requestBytes, arrivedMs, ofStream, ofProcess, other ?? _givenUp.Token);

        public void GiveUp() => _ = _givenUp.CancelAsync();

        /// <summary>Clears the call for reuse. Returns false if its token was cancelled, so that it cannot be reused.</summary>
        public bool TryReset()
        {
            (Call, Reads) = (null!, null);
            return _givenUp.TryReset();
        }

        /// <summary>A call that waits for room for a large answer.</summary>
        internal sealed class Hold(OpenCall open, int bytes) : TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously)
        {
            public OpenCall Open => open;

            public int Bytes => bytes;
        }
    }
}
