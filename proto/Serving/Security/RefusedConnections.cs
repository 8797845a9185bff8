using System.Net;
using Microsoft.Extensions.Logging;

namespace KvCluster.Serving.Security;

/// <summary>Says who was refused and why, the same thing at most once a minute: whoever is refused tries again at once. Any thread.</summary>
internal sealed class RefusedConnections(ILogger log, TimeProvider time)
{
    private static readonly TimeSpan SilentTime = TimeSpan.FromMinutes(1);

    private readonly Lock _lock = new();
    private (string Host, string Reason) _said;
    private long _saidTimestamp;

    public void Tell(EndPoint? remote, string reason)
    {
        var host = (remote as IPEndPoint)?.Address.ToString() ?? "unknown";
        lock (_lock)
        {
            if (_said == (host, reason) && time.GetElapsedTime(_saidTimestamp) < SilentTime)
                return;
            _said = (host, reason);
            _saidTimestamp = time.GetTimestamp();
        }
        SecurityLog.Refused(log, host, reason);
    }
}
