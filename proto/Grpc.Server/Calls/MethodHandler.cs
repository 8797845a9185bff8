using Grpc.Core;

namespace Grpc.AspNetCore.Server.Calls;

/// <summary>Serves the calls of one method.</summary>
internal abstract class MethodHandler(string fullName)
{
    public string FullName { get; } = fullName;

    /// <summary>Serves one call to its end; whatever fails becomes its status.</summary>
    public async Task RunAsync(ServerCall call)
    {
        try
        {
            call.CheckEncoding();
            await HandleAsync(call).ConfigureAwait(false);
            call.Succeed();
        }
        catch (Exception failure)
        {
            call.Fail(failure, FullName);
        }
        await call.FinishAsync().ConfigureAwait(false);
    }

    /// <summary>Reads the request, runs the handler and writes its messages; an exception is the status of the call.</summary>
    protected abstract Task HandleAsync(ServerCall call);

    protected static RpcException NoMessage() => new(new Status(StatusCode.Cancelled, "No message returned from method."));
}
