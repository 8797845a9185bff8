// The messages of operators whose ids WireIds reads and writes.
namespace KvCluster.Admin.V1;

internal sealed partial class DrainRequest : IOfNode;

internal sealed partial class KeptLeadership : IOfShard;

internal sealed partial class LeavingNode : IOfNode;

internal sealed partial class NodeExamination : IOfNode;

internal sealed partial class QuarantineRequest : IOfNode;

internal sealed partial class ReplicaCheckpoint : IOfShard, IOfNode;
