// What a host of calls may add to its services to have its own errors instead of gRPC's. Any thread.
using Grpc.Core;

namespace KvCluster.ServiceDefaults.Calls;

/// <summary>
/// Limits the message size of single methods, measured uncompressed, below the server's limit, and creates the error for larger messages. Added to the
/// services of a host that wants such limits; without it the server's limit applies to all methods, with gRPC's own status.
/// </summary>
/// <param name="bytesMaxOf">The limit of a method, by its path.</param>
/// <param name="create">Creates the error for a message that is larger, with the limit and whether the call's requests are a stream.</param>
internal sealed class RequestSizes(Func<string, int> bytesMaxOf, Func<int, bool, RpcException> create)
{
    public int BytesMaxOf(string method) => bytesMaxOf(method);

    public RpcException TooLarge(int bytesMax, bool isStream) => create(bytesMax, isStream);
}

/// <summary>
/// Creates the error for calls whose requests are not encoded messages of their methods. Added to the services of a host that has its own error for this.
/// Without it such a call ends with INTERNAL, which looks like a failure of the server.
/// </summary>
/// <param name="create">Called for each such call, because an exception is not thrown twice.</param>
internal sealed class UnreadableRequest(Func<RpcException> create)
{
    public RpcException ToException() => create();
}

/// <summary>
/// Creates the error for calls to methods that no service of the server has. Added to the services of a host that has its own error for this. Without it such a
/// call ends with UNIMPLEMENTED and no details.
/// </summary>
/// <param name="create">Called for each such call with its path, because an exception is not thrown twice.</param>
internal sealed class UnservedCall(Func<string, RpcException> create)
{
    public RpcException ToException(string path) => create(path);
}
