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

    /// <summary>A second destination of an attempt at any replica whose first one has not answered yet; never one that is slow to connect.</summary>
    /// <param name="route">The key's shard; null if no known shard has it.</param>
    /// <param name="first">The address of the first one.</param>
    Destination ForHedge(ShardRoute? route, string first);

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

/// <summary>Where an attempt of a call, or a stream, is sent; or why it cannot be sent anywhere now.</summary>
/// <param name="Address">Null if no address can be used for the moment.</param>
/// <param name="Failure">Without an address: the reason, for an error message.</param>
internal readonly record struct Destination(string? Address, string? Failure)
{
    /// <summary>The generation of the route by which the address was chosen; 0 if it was chosen without one.</summary>
    public ulong Generation { get; init; }

    /// <summary>Every address is unusable for the moment, and this is one whose connection is still being made. The call waits for it.</summary>
    public bool IsSlow { get; init; }
}
