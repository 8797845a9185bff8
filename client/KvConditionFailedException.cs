namespace KvCluster.Client;

/// <summary>A condition did not hold; nothing was applied.</summary>
public sealed class KvConditionFailedException(string message, int conditionIndex, ShardPosition position) : KvException("CONDITION_FAILED", message)
{
    /// <summary>Which of the request's conditions.</summary>
    public int ConditionIndex { get; } = conditionIndex;

    /// <summary>The newest etag that it was evaluated on.</summary>
    public ShardPosition Position { get; } = position;
}
