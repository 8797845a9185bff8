// The calls of one exchange at a node. The loop that reads the stream starts them and reads trees whose pages are in memory; while the disk is slow they are
// read elsewhere (InlineReads). A call is run on the request's bytes in the message.
using System.Text;
using Grpc.Core;
using KvCluster.Node.Api.Calls;
using KvCluster.Node.Api.Errors;
using KvCluster.Node.Runtime;
using KvCluster.Node.Telemetry;
using KvCluster.ServiceDefaults.Exchanges;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.Telemetry;
using KvCluster.V1;
using KvCluster.Wire;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Api;

/// <summary>Runs the calls of one exchange.</summary>
internal sealed class KvExchange : IExchangeHandler
{
    private readonly KvCalls _calls;
    private readonly TimeProvider _clock;
    private readonly ILogger _log;
    private readonly CallWaits _waits = new();
    private readonly InlineReads _inline;
    private readonly ExchangeReplies _replies;

    // The arrival time of all calls in the message, including those that have to wait.
    private long _arrived;

    public KvExchange(
        KvCalls calls, ExchangePlaces node, CallMemory memory,
        TimeProvider clock, IServerStreamWriter<MessageBytes> responses, ILogger log, CancellationToken cancellationToken)
    {
        _calls = calls;
        _clock = clock;
        _log = log;
        _inline = new InlineReads(clock.TimestampFrequency, DiskWaits.OfThisThread);
        _replies = new ExchangeReplies(this, node, memory, responses, cancellationToken);
    }

    /// <summary>The caller's connection; null if there is none.</summary>
    public ServerCallContext? Caller { get; init; }

    public Google.Rpc.Status RepliesWait => ApiErrors.RepliesWait.ToStatus();

    public Google.Rpc.Status NotRead => ApiErrors.NotRead.ToStatus();

    /// <inheritdoc cref="ExchangeServer.RunAsync"/>
    public Task RunAsync(IAsyncStreamReader<MessageBytes> requests) => new ExchangeServer(this, _replies).RunAsync(requests);

    public void Arrived() => _arrived = _clock.GetTimestamp();

    public void Begin() => _inline.Starts(_arrived);

    public void Pause() => _inline.Ended(_clock.GetTimestamp());

    public void Cancel(ulong id) => _waits.Cancel(id);

    public void Start(scoped in CallHead head)
    {
        var method = head.Method;
        var watched = _calls.Watches ? _arrived : 0;
        var now = _clock.GetTimestamp();
        var target = new CallTarget(
            head.Shard, head.Generation, head.TimeoutMs == 0 ? 0 : _arrived + (head.TimeoutMs * _clock.TimestampFrequency / 1_000), _replies.Broken)
        {
            Caller = Caller,
            Id = head.Id,
            Waits = _waits,
            ArrivedTimestamp = watched,
            ReadsElsewhere = !_inline.Begun(now),
            Span = head.Traceparent.Length != Spans.HeaderLength || watched == 0 ? null
                : NodeTraces.StartCall(method, Encoding.ASCII.GetString(head.Traceparent)),
        };
        var refusal = _replies.TryOpen(head.Generation == 0 ? default : head.Shard, method.IsChange(), head.Request.Length, out var place) switch
        {
            PlaceOutcome.Taken => null,
            PlaceOutcome.ShardIsFull => ApiErrors.Busy,
            _ => ApiErrors.RequestsWait,
        };
        var sink = new ExchangeSink(_replies, head.Id, place, head.ReplyBytesMax is 0 or > int.MaxValue ? int.MaxValue : (int)head.ReplyBytesMax);
        if (refusal is null && target.DeadlineTimestamp != 0 && now > target.DeadlineTimestamp)
            refusal = ApiErrors.DeadlinePassed;
        if (refusal is not null)
        {
            _calls.Refused(method, refusal, target.Span);
            sink.Refuse(refusal);
            return;
        }
        try
        {
            var running = _calls.StartAsync(method, head.Request, target, sink);
            if (!running.IsCompletedSuccessfully)
                _ = EndAsync(running, method, target, sink);
        }
        catch (Exception failure)
        {
            Fail(failure, method, target, sink);
        }
    }

    public Exception SendingFailed(Exception failure)
    {
        LoopFailures.Count();
        ApiLog.SendingFailed(_log, failure);
        return ApiErrors.Internal(failure, isChange: true).ToStatus().ToRpcException();
    }

    // The call's outcome goes to the sink.
    private async Task EndAsync(ValueTask running, Method method, CallTarget target, ExchangeSink sink)
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
    private void Fail(Exception failure, Method method, in CallTarget target, ExchangeSink sink)
    {
        ApiLog.Unexpected(_log, method, failure);
        sink.Refuse(_calls.Failed(failure, method, target));
    }
}
