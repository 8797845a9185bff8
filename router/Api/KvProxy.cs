using Google.Protobuf;
using Grpc.Core;
using KvCluster.Client.Transport;
using KvCluster.Router.Telemetry;
using KvCluster.Serving;
using KvCluster.V1;
using KvCluster.Wire;
using Method = KvCluster.V1.Method;

namespace KvCluster.Router.Api;

/// <summary>The service Kv of a router: every call goes to the leader of its key's shard, or to any replica if it is a read that allows it, as the bytes that it came as. A singleton.</summary>
internal sealed class KvProxy(Forwarding forwarding, CallRouter calls, NodeChannels channels, RouterMetrics metrics, RouterOptions options) : EncodedKvService
{
    public override Task<MessageBytes> Get(MessageBytes request, ServerCallContext context) => CallAsync(Method.Get, request, context);

    public override Task<MessageBytes> GetMany(MessageBytes request, ServerCallContext context) => CallAsync(Method.GetMany, request, context);

    public override Task<MessageBytes> Put(MessageBytes request, ServerCallContext context) => CallAsync(Method.Put, request, context);

    public override Task<MessageBytes> Delete(MessageBytes request, ServerCallContext context) => CallAsync(Method.Delete, request, context);

    public override Task<MessageBytes> Write(MessageBytes request, ServerCallContext context) => CallAsync(Method.Write, request, context);

    public override Task<MessageBytes> OpenSession(MessageBytes request, ServerCallContext context) => CallAsync(Method.OpenSession, request, context);

    public override async Task Scan(MessageBytes request, IServerStreamWriter<MessageBytes> responseStream, ServerCallContext context)
    {
        var message = Parse(request);
        request.Return();
        var began = metrics.Begin();
        string? error = "CANCELLED";
        try
        {
            await SendPagesAsync(message, responseStream, context).ConfigureAwait(false);
            error = null;
        }
        catch (RpcException failure)
        {
            error = Spans.NameOf(failure.StatusCode);
            throw;
        }
        finally
        {
            metrics.EndScan(began, error);
        }
    }

    private async Task SendPagesAsync(ScanRequest message, IServerStreamWriter<MessageBytes> responseStream, ServerCallContext context)
    {
        await foreach (var page in new ScanWalk(calls, channels, options.Timeout).PagesAsync(message, context.CancellationToken).ConfigureAwait(false))
        {
            var response = MessageBytes.Rent();
            page.WriteTo(response.Append(page.CalculateSize()));
            await responseStream.WriteAsync(response).ConfigureAwait(false);
        }
    }

    public override async Task Exchange(IAsyncStreamReader<MessageBytes> requestStream, IServerStreamWriter<MessageBytes> responseStream, ServerCallContext context)
    {
        using var exchange = new ExchangeProxy(forwarding, options, responseStream, context);
        await exchange.RunAsync(requestStream).ConfigureAwait(false);
    }

    private static ScanRequest Parse(MessageBytes request)
    {
        try
        {
            return ScanRequest.Parser.ParseFrom(request.Written);
        }
        catch (InvalidProtocolBufferException failure)
        {
            throw CallStatus.Create(StatusCode.InvalidArgument, "BAD_REQUEST", failure.Message, "no").ToRpcException();
        }
    }

    private async Task<MessageBytes> CallAsync(Method method, MessageBytes request, ServerCallContext context)
    {
        var traceparent = RouterMetrics.TakesSpans ? context.RequestHeaders.GetValue(Spans.Header) : null;
        var reply = await forwarding.CallAsync(method, UnsafeByteOperations.UnsafeWrap(request.Memory), traceparent, Deadlines.Of(context, options.Timeout), context, context.CancellationToken).ConfigureAwait(false);
        var response = MessageBytes.Rent();
        if (reply.Error is not { } error)
        {
            // Only after an answer: a call that its deadline ended may still be on its way out of here.
            request.Return();
            response.Append(reply.Response.Span);
            return response;
        }
        // No exception: refusals are ordinary, and an exception costs more than the call.
        context.Status = new Status((StatusCode)error.Code, error.Message);
        context.ResponseTrailers.Add(StatusDetails.Trailer, error.ToByteArray());
        return response;
    }
}
