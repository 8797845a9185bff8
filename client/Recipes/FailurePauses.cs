namespace KvCluster.Client;

/// <summary>How long a recipe that goes on by itself waits after a call that failed. Pure; any thread.</summary>
internal static class FailurePauses
{
    /// <summary>A recipe that waited for longer would stand still although the cluster may have been well for long.</summary>
    private static readonly TimeSpan AskedMax = TimeSpan.FromSeconds(30);

    /// <summary>As long as the refusal asks (<see cref="KvUnavailableException.RetryAfter"/>), and at least the recipe's own pause.</summary>
    public static TimeSpan PauseAfter(this KvException failure, TimeSpan least)
    {
        var asked = failure is KvUnavailableException { RetryAfter: { } wait } ? wait : TimeSpan.Zero;
        return asked <= least ? least : asked < AskedMax ? asked : AskedMax;
    }
}
