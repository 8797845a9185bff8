namespace KvCluster.Client;

/// <summary>What is special about a change of a key or a set.</summary>
public record KvChangeOptions : KvCallOptions
{
    /// <summary>A test of the state before the change.</summary>
    public KvCondition? Condition { get; init; }

    /// <summary>
    /// For calls that try a change, such as <see cref="KvClient.TryPutAsync"/>: if the condition does not hold, also return the value of its key
    /// (<see cref="KvFailedCondition.Value"/>).
    /// </summary>
    public bool WithPresentValue { get; init; }

    /// <summary>A change on a condition, of which nothing else is special; null means one without a condition.</summary>
    public static implicit operator KvChangeOptions(KvCondition? condition) => new() { Condition = condition };
}
