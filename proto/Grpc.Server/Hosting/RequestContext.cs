using Grpc.AspNetCore.Server.Calls;

namespace Grpc.AspNetCore.Server.Hosting;

/// <summary>
/// The state of one request of the server: a call of a method, or a request of the inner application. Reused by the requests of one HTTP/2 stream object.
/// </summary>
internal sealed class RequestContext<TInner>
{
    /// <summary>The method called; null if the request belongs to the inner application.</summary>
    public MethodHandler? Method { get; set; }

    /// <summary>The call object, which serves one gRPC request after the other.</summary>
    public ServerCall? Call { get; set; }

    /// <summary>The calls of the connection, which stays the same as long as this context exists; null until they are counted.</summary>
    public ConnectionCalls? OfConnection { get; set; }

    /// <summary>Whether the request holds one of the places for open calls.</summary>
    public bool HasPlace { get; set; }

    /// <summary>Whether the call is refused because there was no place for it.</summary>
    public bool IsRefused { get; set; }

    public TInner? Inner { get; set; }
}
