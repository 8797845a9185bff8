// What a process says of its own health: set by whoever starts and stops it, asked through the admin port. Thread-safe.
using Microsoft.AspNetCore.Http;

namespace KvCluster.ServiceDefaults.Admin;

/// <summary>Alive, started, ready: each yes, or no with why.</summary>
internal sealed class ProcessHealth
{
    private volatile string? _notStarted = "it starts";
    private volatile string? _broken;
    private volatile bool _draining;
    private volatile bool _stopping;
    private Func<string?> _unready = static () => null;

    /// <summary>Why it should be ended and started again; null: it is alive. What it only waits for is no reason.</summary>
    public string? NotAlive => _broken;

    /// <summary>What the start waits for; null: its data are open and it listens.</summary>
    public string? NotStarted => _broken ?? _notStarted;

    /// <summary>Why nobody should send it requests; null: it is ready.</summary>
    public string? NotReady => NotStarted ?? (_stopping ? "it stops" : _draining ? "it drains" : Volatile.Read(ref _unready)());

    /// <summary>The three questions, for the admin port.</summary>
    public IEnumerable<AdminEndpoint> Endpoints =>
    [
        Answer("/health/alive", () => NotAlive, "alive"),
        Answer("/health/started", () => NotStarted, "started"),
        Answer("/health/ready", () => NotReady, "ready"),
    ];

    /// <summary>The start waits for something.</summary>
    public void Waits(string forWhat) => _notStarted = forWhat;

    /// <summary>The start is over.</summary>
    /// <param name="unready">Why it is not ready, asked at each question, on any thread; null: it is.</param>
    public void Started(Func<string?> unready)
    {
        Volatile.Write(ref _unready, unready);
        _notStarted = null;
    }

    public void Drains(bool draining) => _draining = draining;

    /// <summary>It was told to stop, and does.</summary>
    public void Stops() => _stopping = true;

    /// <summary>It cannot go on.</summary>
    public void Breaks(string why) => _broken = why;

    private static AdminEndpoint Answer(string path, Func<string?> reason, string yes) => new(HttpMethods.Get, path, context => reason() is { } why
        ? AdminText.WriteAsync(context, StatusCodes.Status503ServiceUnavailable, why.ReplaceLineEndings(" "))
        : AdminText.WriteAsync(context, StatusCodes.Status200OK, yes));
}
