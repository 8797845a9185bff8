using Grpc.Core;
using Status = Google.Rpc.Status;

namespace KvCluster.Client.Transport;

/// <summary>
/// Decides the outcome of a failed call of the service Admin. A node that refuses says that nothing was done. After a lost connection or a passed deadline
/// the outcome is unknown, because the node may have executed the call. Pure; any thread.
/// </summary>
internal static class OperatorOutcomes
{
    /// <summary>The error to return to the caller: as the node gave it, as not sent, or as of unknown outcome.</summary>
    /// <param name="failure">How the call ended.</param>
    /// <param name="asked">What was asked, for people: a node or a router.</param>
    public static Status Judge(RpcException failure, string asked)
    {
        if (failure.GetRpcStatus() is { } status && StatusDetails.InfoOf(status) is not null)
            return status;
        return WasNotSent(failure)
            ? CallStatus.Create(
                StatusCode.Unavailable, "NODE_UNREACHABLE",
                $"No connection could be made to {asked} ({failure.Status.Detail}). Nothing was applied; try again.", StatusDetails.NotApplied)
            : CallStatus.Create(
                StatusCode.Unknown, "OUTCOME_UNKNOWN", $"The request was sent to {asked}, which did not answer, so its outcome is unknown "
                    + $"({failure.Status.Detail}). Check the cluster's status, or repeat the request, which is harmless.", StatusDetails.MaybeApplied);
    }

    /// <summary>Whether there was no connection, so that the call was not sent.</summary>
    public static bool WasNotSent(RpcException failure)
    {
        for (var cause = failure.Status.DebugException; cause is not null; cause = cause.InnerException)
        {
            if (cause is HttpRequestException { HttpRequestError: HttpRequestError.ConnectionError
                or HttpRequestError.NameResolutionError or HttpRequestError.SecureConnectionError })
                return true;
            // The time for a connection has passed.
            if (cause is OperationCanceledException { InnerException: TimeoutException })
                return true;
        }
        return false;
    }
}
