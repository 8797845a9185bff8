using Grpc.Core;

namespace Grpc.AspNetCore.Server.Calls;

/// <summary>Answers calls to methods that no service has.</summary>
internal sealed class UnknownMethodHandler : MethodHandler
{
    public static readonly UnknownMethodHandler Instance = new();

    private UnknownMethodHandler()
        : base("an unknown method")
    {
    }

    public override Task RunAsync(ServerCall call)
    {
        call.Fail(new RpcException(new Status(StatusCode.Unimplemented, $"{call.Method} is not served here.")), FullName);
        call.Finish();
        return Task.CompletedTask;
    }
}
