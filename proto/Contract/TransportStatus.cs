using System.Net.Sockets;
using Grpc.Core;

namespace KvCluster;

/// <summary>Maps failures below gRPC to a status, by the tables of gRPC's HTTP/2 description.</summary>
internal static class TransportStatus
{
    // For a stream that was reset, by the code of RST_STREAM.
    private static StatusCode FromResetCode(long errorCode) => errorCode switch
    {
        0x0 or 0x1 or 0x2 or 0x3 or 0x4 or 0x6 or 0x9 or 0xa => StatusCode.Internal,
        0x7 => StatusCode.Unavailable,
        0x8 => StatusCode.Cancelled,
        0xb => StatusCode.ResourceExhausted,
        0xc => StatusCode.PermissionDenied,
        _ => StatusCode.Unknown,
    };

    /// <summary>For exceptions of HttpClient. Searches the inner exceptions for the cause.</summary>
    public static Status FromException(Exception failure)
    {
        for (var cause = failure; cause is not null; cause = cause.InnerException)
        {
            switch (cause)
            {
                case RpcException rpc:
                    return rpc.Status;
                // HttpClient closed the connection because pings were not answered. The message of a reset has its code.
                case HttpProtocolException protocol when !protocol.Message.Contains("(0x", StringComparison.Ordinal):
                    return new Status(StatusCode.Unavailable, $"The connection was lost: {protocol.Message}", failure);
                case HttpProtocolException protocol:
                    return new Status(FromResetCode(protocol.ErrorCode), $"The peer reset the call: {protocol.Message}", failure);
                // HttpClient's own message refers to the inner exception, which says what is wrong with TLS.
                case HttpRequestException { HttpRequestError: HttpRequestError.SecureConnectionError, InnerException: { } inner }:
                    return new Status(StatusCode.Unavailable, $"No connection: TLS: {inner.Message}", failure);
                // HttpClient's limit of the time for a connection. The request was not sent.
                case TimeoutException:
                    return new Status(StatusCode.Unavailable, $"No connection: {cause.Message}", failure);
                case SocketException:
                case HttpRequestException { HttpRequestError: HttpRequestError.ConnectionError
                    or HttpRequestError.NameResolutionError or HttpRequestError.SecureConnectionError }:
                    return new Status(StatusCode.Unavailable, $"No connection: {cause.Message}", failure);
            }
        }
        return failure switch
        {
            // The cause says more than HttpClient's message. For example, it has the alert of a server that refused a certificate.
            IOException or HttpRequestException => new Status(StatusCode.Unavailable, $"The connection was lost: {DescribeCause(failure)}", failure),
            _ => new Status(StatusCode.Internal, $"The call failed: {failure.Message}", failure),
        };
    }

    // A server that refuses a certificate may close the connection before the first request is sent.
    private static string DescribeCause(Exception failure) =>
        failure.GetBaseException() is ObjectDisposedException ? "the server closed it immediately" : failure.GetBaseException().Message;
}
