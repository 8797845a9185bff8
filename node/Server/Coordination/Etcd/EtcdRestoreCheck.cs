using Etcdserverpb;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Coordination.Etcd;

/// <summary>
/// Notices that etcd was restored or replaced: checks the cluster id and the revision of each answer against what was seen before, and raises the alarm. It
/// stays until the node goes by another store (<c>CoordinatorFollowing</c>), or its process ends. Thread-safe.
/// </summary>
internal sealed partial class EtcdRestoreCheck(ILogger log)
{
    private readonly Lock _gate = new();
    private ulong _clusterId;
    private long _revisionSeen;
    private int _stores;
    private string? _alarm;

    /// <summary>The greatest revision in any answer. A linearizable request sent from now on must be answered at this revision or a higher one.</summary>
    public SeenStore Seen
    {
        get
        {
            lock (_gate)
                return new SeenStore(_stores, _revisionSeen);
        }
    }

    /// <summary>
    /// The store that answers now is a different one, which somebody has found to be the right one. Answers of the one before are ignored from here on.
    /// </summary>
    /// <param name="found">Has seen answers of that store only.</param>
    public void ContinueAs(EtcdRestoreCheck found)
    {
        var (clusterId, seen) = found.Store();
        lock (_gate)
        {
            (_clusterId, _revisionSeen) = (clusterId, seen);
            _stores++;
            Volatile.Write(ref _alarm, null);
        }
    }

    /// <exception cref="CoordinatorAlarmException">An earlier answer cannot be from the same store.</exception>
    public void ThrowIfAlarmed()
    {
        if (Volatile.Read(ref _alarm) is { } alarm)
            throw new CoordinatorAlarmException(alarm);
    }

    /// <summary>Checks the header of an answer.</summary>
    /// <param name="asked">The value of <see cref="Seen"/> before the request was sent.</param>
    /// <exception cref="CoordinatorAlarmException">This answer, or an earlier one, cannot be from the same store.</exception>
    /// <exception cref="CoordinatorUnavailableException">The store was replaced since the request was sent.</exception>
    public void Check(ResponseHeader header, SeenStore asked)
    {
        if (Accepts(header, asked))
            return;
        ThrowIfAlarmed();
        throw new CoordinatorUnavailableException("The coordinator was replaced while it was asked.");
    }

    /// <summary>The same without an exception. False if the alarm is raised, or the store was replaced.</summary>
    public bool Accepts(ResponseHeader header, SeenStore asked)
    {
        lock (_gate)
        {
            if (asked.Store != _stores)
                return false;
            if (_clusterId == 0)
                _clusterId = header.ClusterId;
            if (header.ClusterId != _clusterId)
                RaiseLocked($"the coordinator's cluster id was {_clusterId:x} and is {header.ClusterId:x}");
            else if (header.Revision < asked.Revision)
                RaiseLocked($"the coordinator's revision was {asked.Revision} and is {header.Revision}");
            else
                _revisionSeen = Math.Max(_revisionSeen, header.Revision);
            return _alarm is null;
        }
    }

    private (ulong ClusterId, long Revision) Store()
    {
        lock (_gate)
            return (_clusterId, _revisionSeen);
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

/// <summary>What was seen of the coordinator when a request was sent.</summary>
/// <param name="Store">Increases when another store takes its place.</param>
/// <param name="Revision">The greatest revision in its answers.</param>
internal readonly record struct SeenStore(int Store, long Revision);
