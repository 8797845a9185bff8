using Grpc.Core;
using KvCluster.Admin.V1;
using CoordinatorClient = KvCluster.Admin.V1.Coordinator.CoordinatorClient;

namespace KvCluster.Client.Transport;

/// <summary>
/// The call that has the coordinator's records rebuilt. It is made to the endpoint itself first, because nodes that wait for their coordinator have no map; and
/// to a node of the map if the endpoint is a port for clients, or a router. Thread-safe.
/// </summary>
internal sealed class RecoverCall(string endpoint, CallRouter calls, NodeChannels channels)
{
    /// <summary>A router or a node that runs has a map at once.</summary>
    private const int MapWaitMs = 5_000;

    /// <exception cref="RpcException">Its status says what became of the call.</exception>
    public async Task<RecoverResponse> AskAsync(RecoverRequest request, long deadlineMs, CancellationToken cancellationToken)
    {
        var addresses = new Queue<string>([endpoint]);
        for (var isOfMap = false; ; )
        {
            var address = addresses.Dequeue();
            try
            {
                return await new CoordinatorClient(channels.To(address))
                    .RecoverAsync(request, OperatorInvoker.OptionsOf(deadlineMs, cancellationToken)).ConfigureAwait(false);
            }
            catch (RpcException failure) when (!isOfMap && failure.StatusCode == StatusCode.Unimplemented)
            {
                isOfMap = true;
                if (!await calls.WaitForMapAsync(Math.Min(deadlineMs, Environment.TickCount64 + MapWaitMs), cancellationToken).ConfigureAwait(false))
                    throw calls.MapError.ToRpcException();
                addresses = new Queue<string>(calls.Table.AdminAddresses.OrderBy(static node => node.Key).Select(static node => node.Value));
                if (addresses.Count == 0)
                    throw CallStatus.Unavailable("the endpoint knows no node; give the address of a node's port for nodes (listen-peers)").ToRpcException();
            }
            catch (RpcException failure)
            {
                // The next node of the map may be there.
                if (addresses.Count == 0 || !OperatorOutcomes.WasNotSent(failure) || Environment.TickCount64 >= deadlineMs)
                    throw OperatorOutcomes.Judge(failure, $"the node at {address}").ToRpcException();
            }
        }
    }
}
