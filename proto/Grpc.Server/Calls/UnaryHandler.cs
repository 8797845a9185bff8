using System.IO.Pipelines;
using Grpc.Core;

namespace Grpc.AspNetCore.Server.Calls;

/// <summary>One message each way. Nothing is flushed; the end of the call sends headers, message and trailers together.</summary>
internal sealed class UnaryHandler<TRequest, TResponse>(Method<TRequest, TResponse> method, UnaryServerMethod<TRequest, TResponse> handler)
    : MethodHandler(method.FullName)
    where TRequest : class
    where TResponse : class
{
    // One state machine for everything, because state machines are the largest cost of a call.
    public override async Task RunAsync(ServerCall call)
    {
        var hasBegun = false;
        try
        {
            call.CheckEncoding();
            TRequest? request = null;
            ReadResult read;
            do
                read = await call.Requests.ReadAsync().ConfigureAwait(false);
            while (!call.Requests.TryTakeOnly(read, method.RequestMarshaller, ref request));
            // A caller with a short deadline may be gone already. Its call must cost as little as possible, because it is likely to make the next one at once.
            if (call.IsGone)
            {
                call.FinishGone();
                return;
            }
            hasBegun = true;
            var response = await handler(request!, call).ConfigureAwait(false) ?? throw NoMessage();
            call.WriteOnly(response, method.ResponseMarshaller);
            if (call.HasLargeResponse)
                await call.FlushOnlyAsync().ConfigureAwait(false);
            call.Succeed();
        }
        catch (Exception failure)
        {
            call.Fail(failure, FullName);
            if (!hasBegun)
                call.NoteUnbegun();
        }
        call.Finish();
    }
}
