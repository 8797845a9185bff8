using System.Net;
using System.Net.Sockets;
using Grpc.Core;

namespace Grpc.Shared;

/// <summary>What failures below gRPC mean as a status; tables of gRPC's HTTP/2 description.</summary>
internal static class StatusMapping
{
    /// <summary>For an answer that is not gRPC's.</summary>
    public static StatusCode FromHttpStatus(HttpStatusCode status) => status switch
    {
        HttpStatusCode.BadRequest => StatusCode.Internal,
        HttpStatusCode.Unauthorized => StatusCode.Unauthenticated,
        HttpStatusCode.Forbidden => StatusCode.PermissionDenied,
        HttpStatusCode.NotFound => StatusCode.Unimplemented,
        HttpStatusCode.TooManyRequests or HttpStatusCode.BadGateway or HttpStatusCode.ServiceUnavailable or HttpStatusCode.GatewayTimeout => StatusCode.Unavailable,
        _ => StatusCode.Unknown,
    };

    /// <summary>For a stream that was reset; the code of RST_STREAM.</summary>
    public static StatusCode FromResetCode(long errorCode) => errorCode switch
    {
        0x0 or 0x1 or 0x2 or 0x3 or 0x4 or 0x6 or 0x9 or 0xa => StatusCode.Internal,
        0x7 => StatusCode.Unavailable,
        0x8 => StatusCode.Cancelled,
        0xb => StatusCode.ResourceExhausted,
        0xc => StatusCode.PermissionDenied,
        _ => StatusCode.Unknown,
    };

    /// <summary>For what HttpClient throws: looks through inner exceptions for the cause.</summary>
    public static Status FromException(Exception failure)
    {
        for (var cause = failure; cause is not null; cause = cause.InnerException)
        {
            switch (cause)
            {
                case RpcException rpc:
                    return rpc.Status;
                // A connection that HttpClient gave up by itself, because pings were not answered; resets name their code.
                case HttpProtocolException protocol when !protocol.Message.Contains("(0x", StringComparison.Ordinal):
                    return new Status(StatusCode.Unavailable, $"The connection was lost: {protocol.Message}", failure);
                case HttpProtocolException protocol:
                    return new Status(FromResetCode(protocol.ErrorCode), $"The peer reset the call: {protocol.Message}", failure);
                // HttpClient's own words are to look at the inner exception: it tells what is wrong with TLS.
                case HttpRequestException { HttpRequestError: HttpRequestError.SecureConnectionError, InnerException: { } inner }:
                    return new Status(StatusCode.Unavailable, $"No connection: TLS: {inner.Message}", failure);
                case SocketException or HttpRequestException { HttpRequestError: HttpRequestError.ConnectionError or HttpRequestError.NameResolutionError or HttpRequestError.SecureConnectionError }:
                    return new Status(StatusCode.Unavailable, $"No connection: {cause.Message}", failure);
            }
        }
        return failure switch
        {
            // The cause says more than what HttpClient makes of it: what a server says that refuses a certificate is in there.
            IOException or HttpRequestException => new Status(StatusCode.Unavailable, $"The connection was lost: {DescribeCause(failure)}", failure),
            _ => new Status(StatusCode.Internal, $"The call failed: {failure.Message}", failure),
        };
    }

    // A server that refuses a certificate may have closed the connection before the first request is on it.
    private static string DescribeCause(Exception failure) =>
        failure.GetBaseException() is ObjectDisposedException ? "the server closed it at once" : failure.GetBaseException().Message;
}
