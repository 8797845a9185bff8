namespace KvCluster.Client.Runtime;

/// <summary>
/// The time for which something is tried, counted while the process runs. A process that stood still, in a laptop that slept or a frozen container, has tried nothing
/// meanwhile, and learns afterwards only that its connections are broken. Used by one caller, who looks at it more often than the process could be thought to sleep.
/// </summary>
internal sealed class AwakePatience(ClientRuntime runtime, TimeSpan patience)
{
    /// <summary>Between two looks is at most an attempt of a few seconds. Whoever has not looked for longer was not running.</summary>
    private const long AsleepMs = 6_000;

    private long _lookedMs = runtime.NowMs;
    private long _leftMs = (long)patience.TotalMilliseconds;

    /// <summary>Looks whether the time is over. After a sleep it is not, so at least one attempt follows.</summary>
    public bool IsOver()
    {
        var now = runtime.NowMs;
        var passed = now - _lookedMs;
        _lookedMs = now;
        if (passed >= AsleepMs)
            return false;
        _leftMs -= passed;
        return _leftMs <= 0;
    }
}
