// One stream of calls. Requests are read and started by one loop, in order, so that changes keep the order in which they came. Answers come
// on any thread; they gather in one message, and whoever adds the first starts the loop that sends. Both loops end with the stream.
using System.Text;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Node.Telemetry;
using KvCluster.Serving;
using KvCluster.V1;
using KvCluster.Wire;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Api;

/// <summary>Runs the calls of one exchange.</summary>
internal sealed class KvExchange(
    KvCalls calls, TimeProvider clock, IServerStreamWriter<MessageBytes> responses, ILogger log, CancellationToken cancellationToken)
    : IThreadPoolWorkItem
{
    /// <summary>Calls without an answer at which reading stops: a tenth of a shard's queue, so that one stream cannot fill it.</summary>
    private const int OpenCallsMax = 4_096;

    /// <summary>Bytes of answers not sent at which reading stops, for callers that do not read.</summary>
    private const int WaitingBytesMax = 4 << 20;

    private readonly Lock _gate = new();
    private readonly TaskCompletionSource _ended = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private MessageBytes _gathering = MessageBytes.Rent();
    private TaskCompletionSource? _room;
    private int _openCalls;
    private bool _isSending;
    private bool _isReadToEnd;
    private bool _isBroken;

    /// <summary>Whose calls they are; null: nobody's over a connection.</summary>
    public ServerCallContext? Caller { get; init; }

    /// <summary>Ends when the caller has completed its side and every call is answered.</summary>
    /// <exception cref="RpcException">The stream broke; calls that were started go on without an answer.</exception>
    public async Task RunAsync(IAsyncStreamReader<MessageBytes> requests)
    {
        try
        {
            while (await requests.MoveNext(cancellationToken).ConfigureAwait(false))
            {
                var message = requests.Current;
                StartAll(message.Written);
                message.Return();
                await RoomAsync().ConfigureAwait(false);
            }
        }
        catch
        {
            Break();
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
                await responses.WriteAsync(gathered).ConfigureAwait(false);
        }
        catch (Exception failure) when (failure is RpcException or InvalidOperationException or OperationCanceledException)
        {
            // The caller is gone, or the call has ended; the reading loop meets the same and says so.
            Break();
        }
    }

    private void StartAll(ReadOnlySpan<byte> request)
    {
        var reader = new WireReader(request);
        var arrived = calls.Watches ? clock.GetTimestamp() : 0;
        try
        {
            for (int field; (field = reader.ReadField()) != 0;)
            {
                if (field == ExchangeRequest.CallsFieldNumber)
                    Start(reader.ReadBytes(), arrived);
                else
                    reader.Skip();
            }
        }
        catch (MalformedMessageException failure)
        {
            throw new RpcException(new Status(StatusCode.InvalidArgument, failure.Message));
        }
    }

    private void Start(ReadOnlySpan<byte> call, long arrived)
    {
        ulong id = 0, generation = 0;
        uint shard = 0, timeoutMs = 0;
        var method = Method.Unspecified;
        ReadOnlySpan<byte> request = default, traceparent = default;
        var reader = new WireReader(call);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            switch (field)
            {
                case Call.IdFieldNumber: id = reader.ReadUInt64(); break;
                case Call.MethodFieldNumber: method = (Method)reader.ReadUInt32(); break;
                case Call.RequestFieldNumber: request = reader.ReadBytes(); break;
                case Call.TimeoutMsFieldNumber: timeoutMs = reader.ReadUInt32(); break;
                case Call.ShardFieldNumber: shard = reader.ReadUInt32(); break;
                case Call.GenerationFieldNumber: generation = reader.ReadUInt64(); break;
                case Call.TraceparentFieldNumber: traceparent = reader.ReadBytes(); break;
                default: reader.Skip(); break;
            }
        }
        var deadline = timeoutMs == 0 ? 0 : clock.GetTimestamp() + (timeoutMs * clock.TimestampFrequency / 1_000);
        lock (_gate)
            _openCalls++;
        var sink = new Sink(this, id);
        var target = new CallTarget(shard, generation, deadline, cancellationToken)
        {
            Caller = Caller,
            ArrivedTimestamp = arrived,
            Span = traceparent.Length != Spans.HeaderLength || arrived == 0 ? null : NodeTraces.StartCall(method, Encoding.ASCII.GetString(traceparent)),
        };
        try
        {
            var running = calls.StartAsync(method, request, target, sink);
            if (!running.IsCompletedSuccessfully)
                _ = EndAsync(running, method, target, sink);
        }
        catch (Exception failure)
        {
            Fail(failure, method, target, sink);
        }
    }

    // Its outcome goes to the sink.
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

    // What no refusal is known for is a bug; the call's caller hears of it, and the others of the stream are left alone.
    private void Fail(Exception failure, Method method, in CallTarget target, Sink sink)
    {
        CallFailures.Unexpected(log, method, failure);
        sink.Refuse(calls.Failed(failure, method, target));
    }

    private Task RoomAsync()
    {
        lock (_gate)
        {
            if (HasRoomLocked())
                return Task.CompletedTask;
            _room = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
            return _room.Task.WaitAsync(cancellationToken);
        }
    }

    private bool HasRoomLocked() => (_openCalls < OpenCallsMax && _gathering.Count < WaitingBytesMax) || _isBroken;

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
        if (_isReadToEnd && _openCalls == 0 && !_isSending && _gathering.Count == 0)
            _ended.TrySetResult();
    }

    private void Break()
    {
        lock (_gate)
        {
            _isBroken = true;
            _isSending = false;
            _gathering.Clear();
            _room?.TrySetResult();
            _ended.TrySetException(new RpcException(new Status(StatusCode.Cancelled, "The caller went away.")));
        }
    }

    private bool TryTake(out MessageBytes gathered)
    {
        lock (_gate)
        {
            gathered = _gathering;
            if (gathered.Count == 0 || _isBroken)
            {
                _isSending = false;
                EndIfDoneLocked();
                return false;
            }
            _gathering = MessageBytes.Rent();
            if (HasRoomLocked())
                _room?.TrySetResult();
            return true;
        }
    }

    private void Add<T>(ulong id, StatusCode code, int contentField, scoped in T content)
        where T : IAnswer, allows ref struct
    {
        lock (_gate)
        {
            if (_isBroken)
            {
                _openCalls--;
                return;
            }
            var contentBytes = content.Size;
            var replyBytes = WireWriter.VarintFieldSize(id) + WireWriter.VarintFieldSize((uint)code) + WireWriter.BytesFieldSize(contentBytes);
            var writer = new WireWriter(_gathering.Append(WireWriter.BytesFieldSize(replyBytes)));
            writer.BytesHeader(ExchangeResponse.RepliesFieldNumber, replyBytes);
            writer.VarintField(Reply.IdFieldNumber, id);
            writer.VarintField(Reply.CodeFieldNumber, (uint)code);
            writer.BytesHeader(contentField, contentBytes);
            content.WriteTo(writer.Take(contentBytes));
            _openCalls--;
            if (HasRoomLocked())
                _room?.TrySetResult();
            if (_isSending)
                return;
            _isSending = true;
        }
        ThreadPool.UnsafeQueueUserWorkItem(this, preferLocal: false);
    }

    private readonly struct Sink(KvExchange exchange, ulong id) : IReplySink
    {
        public void Answer<T>(scoped in T answer)
            where T : IAnswer, allows ref struct => exchange.Add(id, StatusCode.OK, Reply.ResponseFieldNumber, answer);

        public void Refuse(Refusal refusal) =>
            exchange.Add(id, refusal.Code, Reply.StatusFieldNumber, new EncodedAnswer(refusal.ToStatus().ToByteArray()));
    }
}
