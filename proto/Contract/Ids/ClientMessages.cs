// The messages of clients whose ids WireIds reads and writes.
namespace KvCluster.V1;

internal sealed partial class Call : IOfShard;

internal sealed partial class FollowerStatus : IOfNode, IOfReplica;

internal sealed partial class NodeAddress : IOfNode;

internal sealed partial class NodeStatus : IOfNode;

internal sealed partial class Position : IOfShard;

internal sealed partial class ReplicaStatus : IOfReplica;

internal sealed partial class RequestId : IOfShard;

internal sealed partial class ShardDecision : IOfShard;

internal sealed partial class ShardRoute : IOfShard;
