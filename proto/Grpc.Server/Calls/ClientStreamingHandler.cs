using Grpc.Core;

namespace Grpc.AspNetCore.Server.Calls;

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
