using Grpc.AspNetCore.Server.Calls;

namespace Grpc.AspNetCore.Server.Hosting;

/// <summary>What one request of the server is: a call of a method, or the inner application's. Reused by the requests of one HTTP/2 stream object.</summary>
internal sealed class RequestContext<TInner>
{
    /// <summary>The method called; null while the request is the inner application's.</summary>
    public MethodHandler? Method { get; set; }

    /// <summary>The call that this context lends to one gRPC request after the other.</summary>
    public ServerCall? Call { get; set; }

    public TInner? Inner { get; set; }
}
