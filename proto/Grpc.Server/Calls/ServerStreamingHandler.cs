using Grpc.Core;

namespace Grpc.AspNetCore.Server.Calls;

/// <summary>One message in, many out.</summary>
internal sealed class ServerStreamingHandler<TRequest, TResponse>(Method<TRequest, TResponse> method, ServerStreamingServerMethod<TRequest, TResponse> handler)
    : StreamingHandler(method.FullName)
    where TRequest : class
    where TResponse : class
{
    protected override async Task HandleAsync(ServerCall call)
    {
        var request = await call.ReadOnlyAsync(method.RequestMarshaller).ConfigureAwait(false);
        var responses = new ResponseStreamWriter<TResponse>(call, method.ResponseMarshaller);
        await call.Responses.Start(() => handler(request, responses, call)).ConfigureAwait(false);
    }
}
