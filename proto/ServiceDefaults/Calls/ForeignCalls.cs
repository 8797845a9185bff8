// Refuses calls that are meant for another cluster, the same at node and router. One header is looked up per unary call or stream, on the request's thread.
using Grpc.Core;
using Microsoft.Extensions.DependencyInjection;

namespace KvCluster.ServiceDefaults.Calls;

/// <summary>Compares the cluster that a call names in its metadata, if any, with this one.</summary>
/// <param name="clusterId">This cluster's id; empty while it is not known.</param>
/// <param name="known">Waits until it is known, or the call's deadline has passed; null if it is known from the beginning.</param>
internal sealed class ForeignCalls(Func<string> clusterId, Func<DateTime, CancellationToken, Task>? known = null)
{
    /// <summary>Checks an id that a request names itself.</summary>
    /// <exception cref="RpcException">It is that of another cluster.</exception>
    public static void Check(string expected, string clusterId)
    {
        if (expected.Length > 0 && expected != clusterId)
            throw ClusterHeader.Refusal(expected, clusterId);
    }

    /// <summary>The id that a call names, unless it names none or this cluster's.</summary>
    public string? OtherOf(string? expected) => expected is not null && expected != clusterId() ? expected : null;

    /// <summary>Checks an id that is not this cluster's as far as that is known.</summary>
    /// <param name="expected">The id.</param>
    /// <param name="deadline">The call's deadline; <see cref="DateTime.MaxValue"/> if it has none.</param>
    /// <param name="gone">Cancelled when the caller goes away.</param>
    /// <exception cref="RpcException">It is that of another cluster.</exception>
    public async ValueTask CheckAsync(string expected, DateTime deadline, CancellationToken gone)
    {
        if (clusterId().Length == 0 && known is not null)
            await known(deadline, gone).ConfigureAwait(false);
        // Without an id the call ends by its deadline, because nothing can be served either.
        if (clusterId() is { Length: > 0 } own)
            Check(expected, own);
    }
}

/// <summary>Adds the check to a server.</summary>
internal static class ForeignCallChecks
{
    /// <summary>May be called before or after <c>AddGrpc</c>.</summary>
    public static void AddForeignCalls(this IServiceCollection services, ForeignCalls check) => services.AddSingleton(check);
}
