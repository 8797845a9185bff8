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
