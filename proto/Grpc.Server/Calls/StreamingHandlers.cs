using Grpc.Core;

namespace Grpc.AspNetCore.Server.Calls;

/// <summary>Serves the calls of a method that streams in at least one direction.</summary>
internal abstract class StreamingHandler(string fullName) : MethodHandler(fullName)
{
    public override async Task RunAsync(ServerCall call)
    {
        try
        {
            call.CheckEncoding();
            call.OpenResponses();
            await HandleAsync(call).ConfigureAwait(false);
            call.Succeed();
        }
        catch (Exception failure)
        {
            call.Fail(failure, FullName);
        }
        await call.FinishStreamAsync().ConfigureAwait(false);
    }

    /// <summary>Reads the request, runs the handler and writes its messages. An exception becomes the status of the call.</summary>
    protected abstract Task HandleAsync(ServerCall call);
}

/// <summary>Many messages in, one out.</summary>
internal sealed class ClientStreamingHandler<TRequest, TResponse>(Method<TRequest, TResponse> method, ClientStreamingServerMethod<TRequest, TResponse> handler)
    : StreamingHandler(method.FullName)
    where TRequest : class
    where TResponse : class
{
    protected override async Task HandleAsync(ServerCall call)
    {
        call.LiftRequestLimits();
        var requests = new RequestStreamReader<TRequest>(call, method.RequestMarshaller);
        var response = await handler(requests, call).ConfigureAwait(false) ?? throw NoMessage();
        call.WriteOnly(response, method.ResponseMarshaller);
    }
}

/// <summary>One message in, many out.</summary>
internal sealed class ServerStreamingHandler<TRequest, TResponse>(Method<TRequest, TResponse> method, ServerStreamingServerMethod<TRequest, TResponse> handler)
    : StreamingHandler(method.FullName)
    where TRequest : class
    where TResponse : class
{
    protected override async Task HandleAsync(ServerCall call)
    {
        var request = await call.Requests.ReadOnlyAsync(method.RequestMarshaller).ConfigureAwait(false);
        var responses = new ResponseStreamWriter<TResponse>(call, method.ResponseMarshaller);
        await call.Responses.Start(() => handler(request, responses, call)).ConfigureAwait(false);
    }
}

/// <summary>Many messages each way.</summary>
internal sealed class DuplexStreamingHandler<TRequest, TResponse>(Method<TRequest, TResponse> method, DuplexStreamingServerMethod<TRequest, TResponse> handler)
    : StreamingHandler(method.FullName)
    where TRequest : class
    where TResponse : class
{
    protected override async Task HandleAsync(ServerCall call)
    {
        call.LiftRequestLimits();
        var requests = new RequestStreamReader<TRequest>(call, method.RequestMarshaller);
        var responses = new ResponseStreamWriter<TResponse>(call, method.ResponseMarshaller);
        await call.Responses.Start(() => handler(requests, responses, call)).ConfigureAwait(false);
    }
}
