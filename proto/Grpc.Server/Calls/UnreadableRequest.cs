using Grpc.Core;

namespace Grpc.AspNetCore.Server.Calls;

/// <summary>
/// What calls end with whose requests are no encoded messages of their methods. A service of a host that has words of its own for it; without it such a call ends INTERNAL, as with
/// grpc-dotnet, which reads as a failure of the server.
/// </summary>
/// <param name="create">Called for each: an exception is not thrown twice.</param>
internal sealed class UnreadableRequest(Func<RpcException> create)
{
    public RpcException ToException() => create();
}
