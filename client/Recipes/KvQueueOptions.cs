namespace KvCluster.Client;

/// <summary>How the jobs of a <see cref="KvQueue"/> are handed out. Those who work on one queue should have the same options.</summary>
public sealed class KvQueueOptions
{
    /// <summary>
    /// From a second to a day: after how long another one gets a job when the one that has it dies or pauses. It is renewed while the job is worked on, so it
    /// need not be as long as the work, but longer than usual pauses and changes of leaders are.
    /// </summary>
    public TimeSpan LeaseTime { get; init; } = TimeSpan.FromSeconds(30);

    /// <summary>How often a job is handed out before it is put aside as dead.</summary>
    public int AttemptsMax { get; init; } = 10;

    /// <summary>How long a job that failed waits after its first attempt; after each further one twice as long as before.</summary>
    public TimeSpan RetryDelay { get; init; } = TimeSpan.FromSeconds(1);

    /// <summary>The longest wait after a failed attempt.</summary>
    public TimeSpan RetryDelayMax { get; init; } = TimeSpan.FromMinutes(5);

    /// <summary>Who works, for people who look at the keys; up to 8 MiB.</summary>
    public KvValue Worker { get; init; }

    /// <exception cref="ArgumentException">They are invalid.</exception>
    internal void Validate()
    {
        if (LeaseTime < TimeSpan.FromSeconds(1) || LeaseTime > TimeSpan.FromDays(1))
            throw new ArgumentException($"{nameof(LeaseTime)} is {LeaseTime}; it must be from a second to a day.");
        if (AttemptsMax < 1)
            throw new ArgumentException($"{nameof(AttemptsMax)} is {AttemptsMax}; it must be at least 1.");
        if (RetryDelay < TimeSpan.Zero || RetryDelayMax < RetryDelay)
            throw new ArgumentException($"{nameof(RetryDelay)} is {RetryDelay}; it must not be negative, nor longer than {nameof(RetryDelayMax)}.");
    }

    /// <summary>How long a job waits after so many attempts.</summary>
    internal TimeSpan DelayAfter(long attempts) =>
        TimeSpan.FromTicks((long)Math.Min(RetryDelayMax.Ticks, RetryDelay.Ticks * Math.Pow(2, Math.Clamp(attempts - 1, 0, 50))));
}
