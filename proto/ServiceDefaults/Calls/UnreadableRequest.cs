using Grpc.Core;

namespace KvCluster.ServiceDefaults.Calls;

/// <summary>
/// Creates the error for calls whose requests are not encoded messages of their methods. Added to the services of a host that has its own error for this.
/// Without it such a call ends with INTERNAL, which looks like a failure of the server.
/// </summary>
/// <param name="create">Called for each such call, because an exception is not thrown twice.</param>
internal sealed class UnreadableRequest(Func<RpcException> create)
{
    public RpcException ToException() => create();
}
