using Grpc.Core;

namespace Grpc.AspNetCore.Server.Calls;

/// <summary>Serves the calls of one method.</summary>
internal abstract class MethodHandler(string fullName)
{
    public string FullName { get; } = fullName;

    /// <summary>Largest request message, measured uncompressed.</summary>
    public int RequestBytesMax { get; set; }

    /// <summary>Serves one call to its end. Never fails; a failure becomes the status of the call.</summary>
    public abstract Task RunAsync(ServerCall call);

    protected static RpcException NoMessage() => new(new Status(StatusCode.Cancelled, "No message returned from method."));
}

/// <summary>Answers calls to methods that no service has.</summary>
/// <param name="unserved">Creates the error; null if gRPC's own status is used.</param>
internal sealed class UnknownMethodHandler(UnservedCall? unserved) : MethodHandler("an unknown method")
{
    public override Task RunAsync(ServerCall call)
    {
        call.Fail(unserved?.ToException(call.Method) ?? new RpcException(new Status(StatusCode.Unimplemented, $"{call.Method} is not served here.")), FullName);
        call.Finish();
        return Task.CompletedTask;
    }
}
