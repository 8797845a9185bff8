namespace KvCluster.Tests.Client.Hostile;

/// <summary>One call of a program to the library, from its begin to its end. What the library calls for it finds it as <see cref="Present"/>.</summary>
internal sealed class HostileOperation(HostileClock clock, string what, TimeSpan timeout, long began)
{
    private static readonly AsyncLocal<HostileOperation?> Flowing = new();

    private readonly long _beganMs = clock.NowMs;

    public static HostileOperation? Present => Flowing.Value;

    public TimeSpan Timeout => timeout;

    /// <summary>The moment of the model at which it began.</summary>
    public long Began => began;

    /// <summary>When it must have ended; of a stream, when it must bring something or end.</summary>
    public long DeadlineMs { get; private set; } = clock.NowMs + (long)timeout.TotalMilliseconds;

    /// <summary>By which its caller gives it up.</summary>
    public CancellationTokenSource GivesUp { get; } = new();

    public CancellationToken Token => GivesUp.Token;

    /// <summary>Ends when everything that follows from it in the step of its end is done.</summary>
    public Task Ending { get; set; } = Task.CompletedTask;

    public bool HasEnded { get; set; }

    /// <summary>Runs a call in the flow in which it is <see cref="Present"/>.</summary>
    public async Task RunAsync(Func<HostileOperation, Task> call)
    {
        Flowing.Value = this;
        await call(this);
    }

    /// <summary>The time allowed begins anew, as of a stream with each message.</summary>
    public void AllowTime() => DeadlineMs = clock.NowMs + (long)timeout.TotalMilliseconds;

    /// <summary>Its caller rests, so there is no time to keep.</summary>
    public void Rest() => DeadlineMs = long.MaxValue;

    public override string ToString() => $"{what}, begun at {_beganMs} ms for {timeout.TotalMilliseconds} ms, to end at {DeadlineMs} ms";
}
