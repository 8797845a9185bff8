using System.Net;

namespace KvCluster.ServiceDefaults.Logs;

/// <summary>
/// Lets what strangers cause be logged once a minute for each host, whatever else differs, so that none of them fills the log. Any thread.
/// </summary>
internal sealed class OncePerHost(TimeProvider time)
{
    /// <summary>Hosts told apart; those beyond share one line a minute.</summary>
    private const int HostsMax = 64;

    private const string Others = "other hosts";

    private static readonly TimeSpan SilentTime = TimeSpan.FromMinutes(1);

    private readonly Lock _lock = new();
    private readonly Dictionary<string, long> _said = [];

    /// <summary>Whether something of a host is to be said now, and what to call it.</summary>
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
        foreach (var (host, at) in _said)
        {
            // Removing while walking is allowed.
            if (time.GetElapsedTime(at) >= SilentTime)
                _said.Remove(host);
        }
    }
}
