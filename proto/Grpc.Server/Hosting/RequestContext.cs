using Grpc.AspNetCore.Server.Calls;

namespace Grpc.AspNetCore.Server.Hosting;

/// <summary>What one request of the server is: a call of a method, or the inner application's. Reused by the requests of one HTTP/2 stream object.</summary>
internal sealed class RequestContext<TInner>
{
    /// <summary>The method called; null while the request is the inner application's.</summary>
    public MethodHandler? Method { get; set; }

    /// <summary>The call that this context lends to one gRPC request after the other.</summary>
    public ServerCall? Call { get; set; }

    /// <summary>The calls of the connection, to which this context belongs as long as it lives; null until they are counted.</summary>
    public ConnectionCalls? OfConnection { get; set; }

    /// <summary>Whether the request holds one of the places for open calls.</summary>
    public bool HasPlace { get; set; }

    /// <summary>Whether the call is refused, as there was no place for it.</summary>
    public bool IsRefused { get; set; }

    public TInner? Inner { get; set; }
}
