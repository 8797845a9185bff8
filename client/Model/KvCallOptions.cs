namespace KvCluster.Client;

/// <summary>What is special about a call, whatever it does.</summary>
public record KvCallOptions
{
    /// <summary>A timer cannot be set for longer than some weeks.</summary>
    internal static readonly TimeSpan TimeoutMax = TimeSpan.FromDays(1);

    /// <summary>The maximum time of the call with all its retries, at most a day; null means <see cref="KvClientOptions.Timeout"/>.</summary>
    /// <exception cref="ArgumentOutOfRangeException">It is not greater than zero, or longer than a day.</exception>
    public TimeSpan? Timeout
    {
        get;
        init => field = Checked(value);
    }

    /// <summary>
    /// The call fails where it would otherwise be repeated: with <see cref="KvUnavailableException"/>, and a change whose answer was lost with
    /// <see cref="KvOutcomeUnknownException"/>. It still goes to the new leader that a node names. The first change of a shard needs a session, which is opened
    /// as usual.
    /// </summary>
    public bool NoRetry { get; init; }

    /// <exception cref="ArgumentOutOfRangeException">It cannot be the time of a call.</exception>
    internal static TimeSpan? Checked(TimeSpan? value, string meaning = "The timeout of a call") =>
        value is { } time && (time <= TimeSpan.Zero || time > TimeoutMax)
            ? throw new ArgumentOutOfRangeException(
                nameof(value), value, $"{meaning} must be greater than zero and at most {TimeoutMax.TotalHours} hours.")
            : value;
}
