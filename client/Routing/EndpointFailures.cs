using System.Net.Sockets;
using System.Security.Authentication;
using Grpc.Core;

namespace KvCluster.Client.Routing;

/// <summary>
/// Tells the failures of an endpoint that pass from those that waiting does not change: the host's name is unknown, its certificate is not trusted, what stands
/// before the cluster refuses the credentials, or what answers at the address is no node or router, for example an admin port, or TLS where there is none.
/// Pure; any thread.
/// </summary>
internal static class EndpointFailures
{
    private const long ProtocolError = 0x1;
    private const long FrameSizeError = 0x6;
    private const long Http11Required = 0xd;

    /// <summary>Whether waiting does not change this failure of a stream.</summary>
    public static bool IsPermanent(Exception failure)
    {
        if (failure is not RpcException { Status: var status })
            return false;
        // Something that is no gRPC server answered, or a server without this service, or one that refuses the caller.
        if (status.StatusCode is StatusCode.Unimplemented or StatusCode.Unauthenticated or StatusCode.PermissionDenied)
            return true;
        for (var cause = status.DebugException; cause is not null; cause = cause.InnerException)
        {
            if (cause is AuthenticationException
                or SocketException { SocketErrorCode: SocketError.HostNotFound or SocketError.NoData }
                or HttpRequestException { HttpRequestError: HttpRequestError.VersionNegotiationError }
                or HttpIOException { HttpRequestError: HttpRequestError.VersionNegotiationError }
                || (cause is HttpRequestException { HttpRequestError: HttpRequestError.InvalidResponse }
                    or HttpIOException { HttpRequestError: HttpRequestError.InvalidResponse }
                    && !HasReset(cause) && !HasEnd(cause))
                || (cause is HttpProtocolException protocol && IsForeign(protocol)))
                return true;
        }
        return false;
    }

    /// <summary>
    /// Whether the peer accepted a connection and ended it without a byte. A server that expects TLS does this, and so does a proxy whose nodes are down, which
    /// mostly resets it; a reset is read as an end if a write has met it before. So one end says nothing, and several in a row do.
    /// </summary>
    public static bool HasEnded(Exception failure) =>
        failure is RpcException { Status.DebugException: { } cause } && HasEnd(cause) && !HasReset(cause);

    private static bool HasEnd(Exception failure) =>
        failure is HttpIOException { HttpRequestError: HttpRequestError.ResponseEnded } || (failure.InnerException is { } inner && HasEnd(inner));

    private static bool HasReset(Exception failure) => failure is SocketException || (failure.InnerException is { } inner && HasReset(inner));

    // The peer's bytes are no HTTP/2. A peer that only stands still answers no ping, which is the same exception, but its message has no code; one that is busy
    // resets a call by another code.
    private static bool IsForeign(HttpProtocolException failure) =>
        failure.ErrorCode is ProtocolError or FrameSizeError or Http11Required && failure.Message.Contains("(0x", StringComparison.Ordinal);
}
