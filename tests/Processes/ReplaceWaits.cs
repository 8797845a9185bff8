using Grpc.Core;
using KvCluster.Admin.V1;

namespace KvCluster.Processes;

/// <summary>Replacements for tests, which wait for their end.</summary>
internal static class ReplaceWaits
{
    /// <summary>Starts a replacement, or finds the running one, and completes when it is done.</summary>
    /// <exception cref="RpcException">It cannot begin, or it failed; the detail says why.</exception>
    public static async Task ReplaceAndWaitAsync(this Admin.V1.Admin.AdminClient admin, ReplaceRequest request, DateTime? deadline = null)
    {
        var operation = (await admin.ReplaceAsync(request, deadline: deadline)).Operation;
        using var watched = admin.WatchOperation(new WatchOperationRequest { Id = operation.Id }, deadline: deadline);
        while (await watched.ResponseStream.MoveNext(CancellationToken.None))
            operation = watched.ResponseStream.Current.Operation;
        if (operation.State != OperationState.Done)
            throw new RpcException(new Status(StatusCode.FailedPrecondition, operation.Reason));
    }
}
