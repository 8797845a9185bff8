using Google.Rpc;
using Grpc.Core;
using Status = Google.Rpc.Status;

namespace KvCluster.Client.Transport;

/// <summary>
/// What a failed call of the service Admin means for what it was to change. A node that refuses says so; a connection that was lost, or a deadline that passed,
/// says nothing, and the node may have done it all the same. Pure; any thread.
/// </summary>
internal static class OperatorCalls
{
    /// <summary>The failure as its caller is to hear it: as the node put it, as not sent, or as of unknown outcome.</summary>
    public static Status Judge(RpcException failure)
    {
        if (failure.GetRpcStatus() is { } status && status.GetDetail<ErrorInfo>() is not null)
            return status;
        return WasNotSent(failure)
            ? CallStatus.Create(StatusCode.Unavailable, "NODE_UNREACHABLE", $"No connection could be made ({failure.Status.Detail}). Nothing was applied; try again.", "no")
            : CallStatus.Create(
                StatusCode.Unknown, "OUTCOME_UNKNOWN", $"The request was sent, but its outcome is unknown ({failure.Status.Detail}). Look at the cluster's status, or ask again: that does no harm.", "unknown");
    }

    /// <summary>There was no connection to send it by.</summary>
    public static bool WasNotSent(RpcException failure)
    {
        for (var cause = failure.Status.DebugException; cause is not null; cause = cause.InnerException)
        {
            if (cause is HttpRequestException { HttpRequestError: HttpRequestError.ConnectionError or HttpRequestError.NameResolutionError or HttpRequestError.SecureConnectionError })
                return true;
        }
        return false;
    }
}
