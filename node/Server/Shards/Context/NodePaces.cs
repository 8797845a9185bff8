namespace KvCluster.Node.Shards.Context;

/// <summary>
/// What a node's replicas do again and again, and must not do too often together. A thousand shards that are written now and then made forty thousand
/// heartbeats and answers a second, and as many writes of control files as of records.
/// </summary>
internal sealed class NodePaces
{
    /// <summary>So many leaders send heartbeats in the same interval, unless one would have to wait for more than the protocol allows.</summary>
    public const int HeartbeatsOfInterval = 100;

    /// <summary>So many replicas write to their control files how far they are in each interval, with the same exception.</summary>
    public const int ControlsOfInterval = 100;

    /// <summary>The leaders that are not quiescent.</summary>
    public SharedPace Heartbeats { get; } = new(HeartbeatsOfInterval);

    /// <summary>The replicas that are farther than their control files say.</summary>
    public SharedPace Controls { get; } = new(ControlsOfInterval);
}
