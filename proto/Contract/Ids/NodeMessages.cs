// The messages and records of nodes whose ids WireIds reads and writes.
namespace KvCluster.Internal.V1;

internal sealed partial class ControllerRecord : IOfNode;

internal sealed partial class Frame : IOfShard;

internal sealed partial class MayStopRequest : IOfNode;

internal sealed partial class MayStopVerdict : IOfShard;

internal sealed partial class NodeRecord : IOfNode;

internal sealed partial class PeerHello : IOfNode;

internal sealed partial class ReplicaRecord : IOfNode, IOfReplica;

internal sealed partial class ShardRecord : IOfShard;
