using Grpc.Core;
using KvCluster.Admin.V1;
using KvCluster.Node.Api.Errors;
using KvCluster.Node.Coordination;
using KvCluster.Node.CoordinatorRecovery;
using KvCluster.Storage.Files;

namespace KvCluster.Node.Api.Operators;

/// <summary>The Coordinator service: an operator's call that rebuilds the coordinator's records. Any thread.</summary>
internal sealed class CoordinatorService(RecoveryExecution recovery) : Admin.V1.Coordinator.CoordinatorBase
{
    public override async Task<RecoverResponse> Recover(RecoverRequest request, ServerCallContext context)
    {
        try
        {
            return await recovery.RecoverAsync(request, context.CancellationToken).ConfigureAwait(false);
        }
        catch (RecoveryEndedException ended)
        {
            throw (ended.MayBeComplete ? ApiErrors.CoordinatorFailed(ended.Message) : ApiErrors.RecoveryEnded(ended.Message)).ToStatus().ToRpcException();
        }
        catch (Exception failure)
            when (failure is CoordinatorUnavailableException or CoordinatorAlarmException or CoordinatorRecordException or StorageIoException)
        {
            throw ApiErrors.NotRecovered(failure.Message).ToStatus().ToRpcException();
        }
    }
}
