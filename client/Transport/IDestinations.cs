using Grpc.Core;
using KvCluster.V1;

namespace KvCluster.Client.Transport;

/// <summary>
/// Chooses where to send calls: the nodes of a shard (<see cref="ReplicaChoice"/>), or the routers of a client in gateway mode (<see cref="GatewayChoice"/>).
/// <see cref="CallRouter"/> decides once which of them is used. Thread-safe.
/// </summary>
internal interface IDestinations : IAsyncDisposable
{
    /// <summary>Whether an address is chosen by the route, so that there must be a shard map first.</summary>
    bool NeedMap { get; }

    /// <summary>The destination of one attempt of a call on a key.</summary>
    /// <param name="route">The key's shard; null if no known shard has it.</param>
    /// <param name="turn">Counts the attempts, from 0.</param>
    /// <param name="atAnyReplica">It is a read that any replica may serve.</param>
    Destination ForCall(ShardRoute? route, int turn, bool atAnyReplica);

    /// <summary>The destination of a stream that begins in a shard.</summary>
    /// <inheritdoc cref="ForCall"/>
    Destination ForStream(ShardRoute? route, int turn, bool atAnyReplica);

    /// <summary>Notes that no connection to an address could be made.</summary>
    void Pause(string address, string failure);

    /// <summary>The calls for operators at these destinations.</summary>
    /// <param name="calls">Provides the map, the nodes and the clock.</param>
    /// <param name="channels">Connects to them.</param>
    CallInvoker OperatorCalls(CallRouter calls, NodeChannels channels);
}
