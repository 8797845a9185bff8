using Etcdserverpb;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Coordination.Etcd;

/// <summary>Checks each answer against what was seen before. Thread-safe. Once the alarm is raised it stays until the process ends.</summary>
internal sealed partial class EtcdHeaderCheck(ILogger log)
{
    private readonly Lock _gate = new();
    private ulong _clusterId;
    private long _revisionSeen;
    private string? _alarm;

    /// <summary>The greatest revision in any answer. A linearizable request sent from now on must be answered at this revision or a higher one.</summary>
    public long RevisionSeen => Interlocked.Read(ref _revisionSeen);

    /// <exception cref="CoordinatorAlarmException">An earlier answer cannot be from the same store.</exception>
    public void ThrowIfAlarmed()
    {
        if (Volatile.Read(ref _alarm) is { } alarm)
            throw new CoordinatorAlarmException(alarm);
    }

    /// <summary>Checks the header of an answer.</summary>
    /// <param name="notBelow">The value of <see cref="RevisionSeen"/> before the request was sent.</param>
    /// <exception cref="CoordinatorAlarmException">This answer, or an earlier one, cannot be from the same store.</exception>
    public void Check(ResponseHeader header, long notBelow)
    {
        if (!Accepts(header, notBelow))
            ThrowIfAlarmed();
    }

    /// <summary>The same without an exception. False if the alarm is raised.</summary>
    public bool Accepts(ResponseHeader header, long notBelow)
    {
        lock (_gate)
        {
            if (_clusterId == 0)
                _clusterId = header.ClusterId;
            if (header.ClusterId != _clusterId)
                RaiseLocked($"the coordinator's cluster id was {_clusterId:x} and is {header.ClusterId:x}");
            else if (header.Revision < notBelow)
                RaiseLocked($"the coordinator's revision was {notBelow} and is {header.Revision}");
            else
                _revisionSeen = Math.Max(_revisionSeen, header.Revision);
            return _alarm is null;
        }
    }

    private void RaiseLocked(string reason)
    {
        Invariant.CheckHeld(_gate);
        if (_alarm is not null)
            return;
        Volatile.Write(ref _alarm, $"{reason}; it was restored or replaced. Nothing is changed through it any more.");
        Alarm(log, _alarm!);
    }

    [LoggerMessage(1, LogLevel.Critical, "ALARM: {Reason}")]
    private static partial void Alarm(ILogger log, string reason);
}
