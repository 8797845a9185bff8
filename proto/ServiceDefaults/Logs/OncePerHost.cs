using System.Net;

namespace KvCluster.ServiceDefaults.Logs;

/// <summary>
/// Limits log messages that anybody can cause to one a minute for each host, whatever else they say, so that no host can fill the log. Any thread.
/// </summary>
internal sealed class OncePerHost(TimeProvider time)
{
    /// <summary>The number of hosts tracked. Further hosts share one message a minute.</summary>
    private const int HostsMax = 64;

    private const string Others = "other hosts";

    private static readonly TimeSpan SilentTime = TimeSpan.FromMinutes(1);

    private readonly Lock _lock = new();
    private readonly Dictionary<string, long> _said = [];

    /// <summary>Whether a message about a host may be logged now, and how to name the host.</summary>
    public bool MaySay(IPAddress? address, out string host)
    {
        host = address?.ToString() ?? "unknown";
        lock (_lock)
        {
            if (!_said.ContainsKey(host) && _said.Count >= HostsMax)
                ForgetOldLocked();
            if (!_said.ContainsKey(host) && _said.Count >= HostsMax)
                host = Others;
            if (_said.TryGetValue(host, out var at) && time.GetElapsedTime(at) < SilentTime)
                return false;
            _said[host] = time.GetTimestamp();
            return true;
        }
    }

    private void ForgetOldLocked()
    {
        Invariant.CheckHeld(_lock);
        foreach (var (host, at) in _said)
        {
            // A dictionary allows removal during enumeration.
            if (time.GetElapsedTime(at) >= SilentTime)
                _said.Remove(host);
        }
    }
}
