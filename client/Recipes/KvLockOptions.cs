namespace KvCluster.Client;

/// <summary>How a <see cref="KvLock"/> is held.</summary>
public sealed class KvLockOptions
{
    /// <summary>
    /// From a second to a day: after how long others get the lock when this process dies or pauses. It should be longer than its usual pauses and changes of
    /// leaders are.
    /// </summary>
    public TimeSpan Lifetime { get; init; } = TimeSpan.FromSeconds(10);

    /// <summary>The value of the lock's key while it is held, by which others learn who holds it; up to 8 MiB.</summary>
    public KvValue Holder { get; init; }
}
