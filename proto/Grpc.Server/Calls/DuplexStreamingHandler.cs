using Grpc.Core;

namespace Grpc.AspNetCore.Server.Calls;

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
