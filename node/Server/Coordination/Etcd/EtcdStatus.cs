using Grpc.Core;

namespace KvCluster.Node.Coordination.Etcd;

/// <summary>Maps the embedded coordinator's refusals to etcd's statuses.</summary>
internal static class EtcdStatus
{
    /// <exception cref="RpcException">INVALID_ARGUMENT, NOT_FOUND: refused. UNAVAILABLE: the coordinator has stopped; the outcome is unknown.</exception>
    public static Task<T> Answer<T>(Func<T> call)
    {
        try
        {
            return Task.FromResult(call());
        }
        catch (CoordinatorRequestException refused)
        {
            throw new RpcException(new Status(refused.IsNotFound ? StatusCode.NotFound : StatusCode.InvalidArgument, refused.Message));
        }
        catch (CoordinatorUnavailableException stopped)
        {
            throw new RpcException(new Status(StatusCode.Unavailable, stopped.Message));
        }
    }
}
