using Grpc.Core;

namespace Grpc.AspNetCore.Server.Calls;

/// <summary>One message each way: nothing is flushed, the end of the call sends headers, message and trailers together.</summary>
internal sealed class UnaryHandler<TRequest, TResponse>(Method<TRequest, TResponse> method, UnaryServerMethod<TRequest, TResponse> handler)
    : MethodHandler(method.FullName)
    where TRequest : class
    where TResponse : class
{
    protected override async Task HandleAsync(ServerCall call)
    {
        var request = await call.ReadOnlyMessageAsync(method.RequestMarshaller).ConfigureAwait(false);
        var response = await handler(request, call).ConfigureAwait(false) ?? throw NoMessage();
        call.WriteOnlyMessage(response, method.ResponseMarshaller);
    }
}
