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
