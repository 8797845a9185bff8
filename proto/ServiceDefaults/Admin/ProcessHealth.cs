// The health of a process, set by what starts and stops it and queried through the admin port. Thread-safe.
using Microsoft.AspNetCore.Http;

namespace KvCluster.ServiceDefaults.Admin;

/// <summary>Whether the process is alive, started and ready, each with the reason if it is not.</summary>
internal sealed class ProcessHealth
{
    private volatile string? _notStarted = "it is starting";
    private volatile string? _broken;
    private volatile bool _draining;
    private volatile bool _stopping;
    private Func<string?> _unready = static () => null;

    /// <summary>Why it should be ended and started again; null if it is alive. Merely waiting for something is not a reason.</summary>
    public string? NotAlive => _broken;

    /// <summary>What the start waits for; null if its data is open and it listens.</summary>
    public string? NotStarted => _broken ?? _notStarted;

    /// <summary>Why it should get no requests; null if it is ready.</summary>
    public string? NotReady => NotStarted ?? (_stopping ? "it is stopping" : _draining ? "it is draining" : Volatile.Read(ref _unready)());

    /// <summary>The three states as endpoints of the admin port.</summary>
    public IEnumerable<AdminEndpoint> Endpoints =>
    [
        Answer("/health/alive", () => NotAlive, "alive"),
        Answer("/health/started", () => NotStarted, "started"),
        Answer("/health/ready", () => NotReady, "ready"),
    ];

    /// <summary>Records what the start waits for.</summary>
    public void Waits(string forWhat) => _notStarted = forWhat;

    /// <summary>Records that the start is complete.</summary>
    /// <param name="unready">Returns why it is not ready, or null if it is. Called for each request, on any thread.</param>
    public void Started(Func<string?> unready)
    {
        Volatile.Write(ref _unready, unready);
        _notStarted = null;
    }

    public void Drains(bool draining) => _draining = draining;

    /// <summary>Records that it was told to stop and is stopping.</summary>
    public void Stops() => _stopping = true;

    /// <summary>Records that it cannot continue.</summary>
    public void Breaks(string why) => _broken = why;

    private static AdminEndpoint Answer(string path, Func<string?> reason, string yes) => new(HttpMethods.Get, path, context => reason() is { } why
        ? AdminText.WriteAsync(context, StatusCodes.Status503ServiceUnavailable, why.ReplaceLineEndings(" "))
        : AdminText.WriteAsync(context, StatusCodes.Status200OK, yes));
}
