using Google.Protobuf;
using Grpc.Core;
using KvCluster.Node.Api.Calls;
using KvCluster.Node.Api.Errors;
using KvCluster.Node.Api.Reads;
using KvCluster.Node.Api.Watches;
using KvCluster.Node.Telemetry;
using KvCluster.ServiceDefaults.Exchanges;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.Telemetry;
using KvCluster.Wire;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Api;

/// <summary>The Kv service of a node. A singleton; each call runs on a thread of the pool.</summary>
internal sealed class KvService(
    KvCalls calls, KvScans scans, KvWatches watches, NodeMetrics metrics, CallMemory memory, TimeProvider clock, ILogger<KvService> log) : EncodedKvService
{
    private readonly ExchangePlaces _places = new(memory.Requests);
    private readonly AbandonedWork _abandoned = new(memory.Requests);

    protected override async Task Scan(MessageBytes request, IServerStreamWriter<MessageBytes> responseStream, ServerCallContext context)
    {
        var began = clock.GetTimestamp();
        metrics.RequestBegan();
        ApiError? refusal = ApiErrors.Cancelled;
        try
        {
            refusal = await scans.RunAsync(request, responseStream, DeadlineOf(context), context.CancellationToken).ConfigureAwait(false);
        }
        finally
        {
            metrics.Scanned(clock.GetElapsedTime(began), refusal?.Reason);
        }
        if (refusal is not null)
            throw refusal.ToStatus().ToRpcException();
    }

    protected override async Task Watch(MessageBytes request, IServerStreamWriter<MessageBytes> responseStream, ServerCallContext context)
    {
        var end = await watches.RunAsync(request, responseStream, context.CancellationToken).ConfigureAwait(false);
        if (end != ApiErrors.Cancelled)
            metrics.WatchEnded(end.Reason);
        throw end.ToStatus().ToRpcException();
    }

    protected override Task Exchange(
        IAsyncStreamReader<MessageBytes> requestStream, IServerStreamWriter<MessageBytes> responseStream, ServerCallContext context) =>
        new KvExchange(calls, _places, memory, clock, responseStream, log, context.CancellationToken) { Caller = context }.RunAsync(requestStream);

    protected override Task BulkLoad(
        IAsyncStreamReader<MessageBytes> requestStream, IServerStreamWriter<MessageBytes> responseStream, ServerCallContext context) =>
        new BulkLoadStream((chunk, number, ended) => RunAsync(V1.Method.Write, chunk, number, context, ended), responseStream, memory.Replies)
            .RunAsync(requestStream, context.CancellationToken);

    protected override Task<MessageBytes> CallAsync(V1.Method method, MessageBytes request, ServerCallContext context) =>
        RunAsync(method, request, chunk: 0, context, context.CancellationToken);

    /// <summary>Runs a call, or a chunk of a load, which counts as a Write.</summary>
    /// <param name="chunk">The number that the chunk must have; 0 for a call.</param>
    /// <returns>The response. If it is refused, the call is ended with the error, and a chunk's message has it.</returns>
    private async Task<MessageBytes> RunAsync(
        V1.Method method, MessageBytes request, ulong chunk, ServerCallContext context, CancellationToken cancellationToken)
    {
        var requestBytes = request.Count;
        if (!memory.Requests.TryTake(requestBytes, requestBytes <= ByteBudget.SmallBytes))
        {
            calls.Refused(method, ApiErrors.RequestsWait);
            return Refuse(ApiErrors.RequestsWait.ToStatus(), request, chunk, context);
        }
        var response = MessageBytes.Rent();
        var target = new CallTarget(default, 0, DeadlineOf(context), cancellationToken)
        {
            Caller = context,
            Chunk = chunk,
            ArrivedTimestamp = calls.Watches ? clock.GetTimestamp() : 0,
            Span = NodeTraces.IsOn ? NodeTraces.StartCall(method, context.RequestHeaders.GetValue(Spans.Header)) : null,
        };
        try
        {
            var running = calls.StartAsync(method, request.Written, target, new UnarySink(response, memory));
            request.Return();
            if (!running.IsCompleted && running.AsTask() is var work)
            {
                if (!await _abandoned.EndsFirstAsync(work, cancellationToken).ConfigureAwait(false))
                {
                    _ = EndAbandonedAsync(work, method, target, requestBytes, response);
                    return Leave(chunk, context);
                }
                await work.ConfigureAwait(false);
            }
            else
            {
                await running.ConfigureAwait(false);
            }
        }
        catch (Exception failure)
        {
            End(requestBytes, response);
            response.Return();
            throw Fail(failure, method, target).ToStatus().ToRpcException();
        }
        End(requestBytes, response);
        return response.Error is { } status ? Refuse(status, response, chunk, context) : response;
    }

    /// <summary>Keeps what the work of a call holds until the work has ended, although its caller has gone.</summary>
    private async Task EndAbandonedAsync(Task work, V1.Method method, CallTarget target, int requestBytes, MessageBytes response)
    {
        try
        {
            await work.ConfigureAwait(false);
        }
        catch (Exception failure)
        {
            Fail(failure, method, target);
        }
        End(requestBytes, response);
        response.Return();
    }

    // The response is written to the connection next, which accounts for it there.
    private void End(int requestBytes, MessageBytes response)
    {
        memory.Requests.GiveBack(requestBytes);
        memory.Replies.GiveBack(response.Budgeted);
        response.Budgeted = 0;
    }

    private ApiError Fail(Exception failure, V1.Method method, in CallTarget target)
    {
        ApiLog.Unexpected(log, method, failure);
        return calls.Failed(failure, method, target);
    }

    // Without details, because a change goes on: they would say whether it was applied. The call may still be answered, with the status of its deadline.
    private static MessageBytes Leave(ulong chunk, ServerCallContext context)
    {
        if (chunk != 0)
            return Refuse((ApiErrors.Cancelled with { IsOutcomeUnknown = true }).ToStatus(), MessageBytes.Rent(), chunk, context);
        context.Status = new Status(ApiErrors.Cancelled.Code, ApiErrors.Cancelled.Message);
        return MessageBytes.Rent();
    }

    // Not an exception: refusals are ordinary, and an exception costs more than the call. The message is reused as the response, which is empty.
    private static MessageBytes Refuse(Google.Rpc.Status status, MessageBytes message, ulong chunk, ServerCallContext context)
    {
        message.Clear();
        if (chunk != 0)
        {
            message.Error = status;
            return message;
        }
        context.Status = new Status((StatusCode)status.Code, status.Message);
        context.ResponseTrailers.Add(StatusDetails.Trailer, status.ToByteArray());
        return message;
    }

    private long DeadlineOf(ServerCallContext context) => context.Deadline == DateTime.MaxValue
        ? 0
        : clock.GetTimestamp() + (long)((context.Deadline - clock.GetUtcNow().UtcDateTime).TotalSeconds * clock.TimestampFrequency);
}
