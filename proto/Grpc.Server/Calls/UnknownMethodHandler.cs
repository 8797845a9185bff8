using Grpc.Core;

namespace Grpc.AspNetCore.Server.Calls;

/// <summary>Answers calls of methods that nobody serves.</summary>
internal sealed class UnknownMethodHandler : MethodHandler
{
    public static readonly UnknownMethodHandler Instance = new();

    private UnknownMethodHandler()
        : base("an unknown method")
    {
    }

    protected override Task HandleAsync(ServerCall call) =>
        throw new RpcException(new Status(StatusCode.Unimplemented, $"{call.Method} is not served here."));
}
