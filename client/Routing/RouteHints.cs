using Grpc.Core;
using Status = Google.Rpc.Status;

namespace KvCluster.Client.Routing;

/// <summary>
/// What a failed call tells about the map. A node that does not lead the shard of a call, or does not hold it, adds to its refusal a hint with the routes that
/// it knows. Every kind of call passes its failures here, so that the next attempt goes to the right node. Any thread.
/// </summary>
internal static class RouteHints
{
    /// <summary>Merges the hint of a failure into the map, if there is one.</summary>
    public static void Fold(RouteTable table, RpcException failure)
    {
        if (failure.GetRpcStatus() is { } status)
            Fold(table, status);
    }

    /// <summary>Merges the hint of a refusal into the map, if there is one.</summary>
    public static void Fold(RouteTable table, Status refusal)
    {
        if (StatusDetails.HintOf(refusal) is { } hint)
            table.Fold(hint);
    }
}
