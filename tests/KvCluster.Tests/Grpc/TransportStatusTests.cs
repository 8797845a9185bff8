using System.Security.Authentication;
using Grpc.Core;

namespace KvCluster.Tests.Grpc;

public sealed class TransportStatusTests
{
    /// <summary>HttpClient says "see inner exception", which a reader of the message does not have.</summary>
    [Fact]
    public void FromException_OfAFailedHandshake_IncludesTheTlsError()
    {
        var failure = new HttpRequestException(
            HttpRequestError.SecureConnectionError, "The SSL connection could not be established, see inner exception.",
            new AuthenticationException("The frame is corrupt."));
        var status = TransportStatus.FromException(failure);
        Assert.Equal((StatusCode.Unavailable, "No connection: TLS: The frame is corrupt."), (status.StatusCode, status.Detail));
    }

    /// <summary>It ended calls as INTERNAL, so a node that a network drops was not treated as one that refuses connections.</summary>
    [Fact]
    public void FromException_OfAConnectionThatTakesTooLong_IsUnavailable()
    {
        var failure = new TaskCanceledException("The operation was canceled.", new TimeoutException("A connection could not be established."));
        var status = TransportStatus.FromException(failure);
        Assert.Equal((StatusCode.Unavailable, "No connection: A connection could not be established."), (status.StatusCode, status.Detail));
    }
}
