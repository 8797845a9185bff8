// One stream of calls. Requests are read and started by one loop, in order, so that changes keep the order in which they came. ExchangeReplies gives the calls
// their places and sends the answers, which arrive on any thread. Reading and sending end with the stream.
// Many callers may share the stream, as on a router's connection. What one of them asks for may delay the stream or be refused, but never breaks it. No call is
// started while 8 MiB of replies are not written. The loop itself reads trees whose pages are in memory; while the disk is slow they are read elsewhere
// (InlineReads).
using System.Text;
using Grpc.Core;
using KvCluster.Node.Telemetry;
using KvCluster.ServiceDefaults;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.Telemetry;
using KvCluster.V1;
using KvCluster.Wire;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Api;

/// <summary>Runs the calls of one exchange.</summary>
internal sealed class KvExchange(
    KvCalls calls,
    ExchangePlaces node, CallMemory memory, TimeProvider clock, IServerStreamWriter<MessageBytes> responses, ILogger log, CancellationToken cancellationToken)
    : IExchangeCalls
{
    private readonly CallWaits _waits = new();
    private readonly InlineReads _inline = new(clock.TimestampFrequency, DiskWaits.OfThisThread);
    private readonly ExchangeReplies _replies = new(node, memory, responses, log, cancellationToken);
    private long _arrived;

    /// <summary>The caller's connection; null if there is none.</summary>
    public ServerCallContext? Caller { get; init; }

    /// <summary>Completes when the caller has completed its side and every call is answered.</summary>
    /// <exception cref="RpcException">The stream broke. Calls that were started continue without an answer.</exception>
    public async Task RunAsync(IAsyncStreamReader<MessageBytes> requests)
    {
        try
        {
            while (await requests.MoveNext(_replies.Broken).ConfigureAwait(false))
            {
                var message = requests.Current;
                await StartAllAsync(message).ConfigureAwait(false);
                message.Return();
            }
        }
        catch
        {
            // If the stream broke for another reason before, this exception may be a consequence of that.
            if (_replies.BreakWithoutCaller() is { StatusCode: not StatusCode.Cancelled } reason)
                throw reason;
            throw;
        }
        _replies.CompleteReading();
        await _replies.Ended.ConfigureAwait(false);
    }

    private async ValueTask StartAllAsync(MessageBytes message)
    {
        // The arrival time of all calls in the message, including those that have to wait.
        _arrived = clock.GetTimestamp();
        for (var left = message.Count; left > 0;)
        {
            await _replies.RoomAsync().ConfigureAwait(false);
            StartSome(message.Written, ref left);
        }
    }

    private void StartSome(ReadOnlySpan<byte> message, ref int left)
    {
        _inline.Starts(_arrived);
        try
        {
            ExchangeMessages.Start(this, message, ref left);
        }
        finally
        {
            _inline.Ended(clock.GetTimestamp());
        }
    }

    /// <inheritdoc/>
    public void Cancel(ulong id) => _waits.Cancel(id);

    /// <inheritdoc/>
    public bool Start(scoped in CallHead head)
    {
        var method = head.Method;
        var watched = calls.Watches ? _arrived : 0;
        var now = clock.GetTimestamp();
        var target = new CallTarget(
            head.Shard, head.Generation, head.TimeoutMs == 0 ? 0 : _arrived + (head.TimeoutMs * clock.TimestampFrequency / 1_000), cancellationToken)
        {
            Caller = Caller,
            Id = head.Id,
            Waits = _waits,
            ArrivedTimestamp = watched,
            ReadsElsewhere = !_inline.Begun(now),
            Span = head.Traceparent.Length != Spans.HeaderLength || watched == 0 ? null
                : NodeTraces.StartCall(method, Encoding.ASCII.GetString(head.Traceparent)),
        };
        var refusal = _replies.TryOpen(head.Generation == 0 ? default : head.Shard, method, head.Request.Length, out var place);
        if (refusal is not null)
            calls.Refused(method, refusal);
        var sink = new ExchangeReplies.Sink(_replies, head.Id, place, head.ReplyBytesMax is 0 or > int.MaxValue ? int.MaxValue : (int)head.ReplyBytesMax);
        if (refusal is null && target.DeadlineTimestamp != 0 && now > target.DeadlineTimestamp)
            refusal = ApiErrors.DeadlinePassed;
        if (refusal is not null)
        {
            sink.Refuse(refusal);
            return _replies.HasRoom();
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
        return _replies.HasRoom();
    }

    // The call's outcome goes to the sink.
    private async Task EndAsync(ValueTask running, Method method, CallTarget target, ExchangeReplies.Sink sink)
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
    private void Fail(Exception failure, Method method, in CallTarget target, ExchangeReplies.Sink sink)
    {
        CallFailures.Unexpected(log, method, failure);
        sink.Refuse(calls.Failed(failure, method, target));
    }
}
