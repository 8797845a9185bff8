using Google.Protobuf;
using KvCluster.Client.Runtime;
using Status = Google.Rpc.Status;

namespace KvCluster.Client.Transport;

/// <summary>The result of one attempt of a call, and whether another one may follow.</summary>
/// <param name="Response">The encoded response; empty if there is an error.</param>
/// <param name="Error">Null if it succeeded.</param>
/// <param name="MayRetry">Whether the call may be tried again.</param>
internal readonly record struct Attempt(ByteString Response, Status? Error, bool MayRetry)
{
    private const double PauseMsMax = 100;

    /// <summary>The wait that the node asked for in RetryInfo, and the time left then.</summary>
    private (TimeSpan Asked, TimeSpan Left)? Wait { get; init; }

    public static Attempt Failed(Status error, bool mayRetry, (TimeSpan Asked, TimeSpan Left)? wait = null) =>
        new(ByteString.Empty, error, mayRetry) { Wait = wait };

    /// <summary>
    /// How long to wait before the next attempt: at least as long as the node asked, increasing with each attempt, with jitter. Null means the default
    /// delay.
    /// </summary>
    public TimeSpan? Pause(int attempt, ClientRuntime runtime)
    {
        if (Wait is not var (asked, left))
            return null;
        var pause = Math.Max(asked.TotalMilliseconds, Math.Min(5 * Math.Pow(2, Math.Min(attempt, 8)), PauseMsMax));
        return TimeSpan.FromMilliseconds(Math.Min(pause * (1 + (runtime.Chance() / 2)), left.TotalMilliseconds));
    }
}
