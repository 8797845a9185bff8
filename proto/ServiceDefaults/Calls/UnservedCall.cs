using Grpc.Core;

namespace KvCluster.ServiceDefaults.Calls;

/// <summary>
/// Creates the error for calls to methods that no service of the server has. Added to the services of a host that has its own error for this. Without it such a
/// call ends with UNIMPLEMENTED and no details.
/// </summary>
/// <param name="create">Called for each such call with its path, because an exception is not thrown twice.</param>
internal sealed class UnservedCall(Func<string, RpcException> create)
{
    public RpcException ToException(string path) => create(path);
}
