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
