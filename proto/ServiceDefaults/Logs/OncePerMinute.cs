namespace KvCluster.ServiceDefaults.Logs;

/// <summary>
/// Limits the log messages about something that is tried several times a second to one a minute for each reason why it fails. Unlike
/// <see cref="OncePerReason"/> it does so also while reasons alternate, as those of a connection do whose other side speaks TLS. Any thread.
/// </summary>
/// <param name="clock">Measures the minute.</param>
internal sealed class OncePerMinute(TimeProvider clock)
{
    /// <summary>How many reasons are logged in a minute. Further ones, which differ by a number perhaps, say nothing new.</summary>
    internal const int ReasonsMax = 16;

    private static readonly TimeSpan Pause = TimeSpan.FromMinutes(1);

    private readonly Lock _gate = new();
    private readonly Dictionary<string, long> _said = [];

    /// <summary>Whether the reason was not logged within the last minute, and is to be logged.</summary>
    public bool MaySay(string reason)
    {
        lock (_gate)
        {
            var now = clock.GetTimestamp();
            foreach (var (said, at) in _said)
            {
                // A dictionary allows removal during enumeration.
                if (clock.GetElapsedTime(at, now) >= Pause)
                    _said.Remove(said);
            }
            return _said.Count < ReasonsMax && _said.TryAdd(reason, now);
        }
    }

    /// <summary>It has succeeded, so that the same reasons are logged again at once.</summary>
    public void Forget()
    {
        lock (_gate)
            _said.Clear();
    }
}
