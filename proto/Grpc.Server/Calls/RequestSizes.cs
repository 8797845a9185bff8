using Grpc.Core;

namespace Grpc.AspNetCore.Server.Calls;

/// <summary>
/// How large the messages of single methods may be, plain or decompressed, where that is less than the server takes; and what calls end with whose messages are larger. A service of a host that
/// bounds them; without it all methods take what the server does, and the status is gRPC's own.
/// </summary>
/// <param name="bytesMaxOf">Of a method by its path.</param>
/// <param name="create">Called for each that is larger, with the limit and whether the call's requests are a stream.</param>
internal sealed class RequestSizes(Func<string, int> bytesMaxOf, Func<int, bool, RpcException> create)
{
    public int BytesMaxOf(string method) => bytesMaxOf(method);

    public RpcException TooLarge(int bytesMax, bool isStream) => create(bytesMax, isStream);
}
