using KvCluster.Internal.V1;
using KvCluster.Replication.Protocol;
using KvCluster.Replication.State;

namespace KvCluster.Replication.Reconfiguration;

/// <summary>What follows from a copy of the shard's record.</summary>
internal enum RecordVerdict
{
    /// <summary>Nothing may be concluded from the copy.</summary>
    Doubtful,

    /// <summary>The copy is not newer than the record that this replica goes by.</summary>
    Known,

    /// <summary>The replica goes by the copy from here on.</summary>
    Adopt,

    /// <summary>The replica was removed from the shard.</summary>
    Removed,
}

/// <summary>
/// Judges copies of the shard's record, from watches and reads, and asks for fresh ones. What a copy says is believed only if it is not older than what was
/// seen before, and only a fresh read removes a replica. Called within the core's steps.
/// </summary>
internal sealed class RecordAdoption(ReplicaContext context)
{
    private long _askedUs = long.MinValue / 2;
    private long _disownedAt = -1;

    /// <summary>Asks for a fresh copy, at most once in a while.</summary>
    public void Ask()
    {
        if (context.NowUs - _askedUs < context.Options.CoordinatorRetryUs)
            return;
        _askedUs = context.NowUs;
        context.ReadRecord(context.NextRequestId());
    }

    /// <summary>Judges a copy.</summary>
    /// <param name="readId">The read that it answers; 0 from a watch.</param>
    /// <param name="record">The copy; null if the coordinator did not answer.</param>
    /// <param name="revision">Its mod revision.</param>
    public RecordVerdict Judge(long readId, ShardRecord? record, long revision)
    {
        if (!context.TryTrust(readId, record, revision))
            return RecordVerdict.Doubtful;
        if (record is null || RecordVersion.Of(record, revision) <= context.View.Version)
            return RecordVerdict.Known;
        var isFresh = readId != 0;
        // Generation and epoch never decrease with the revision. If they did, the coordinator was restored from an old copy, or this is not its record. A
        // fresh read decides, and raises the alarm.
        if (record.Generation < context.View.Record.Generation || record.Epoch < context.View.Record.Epoch)
        {
            if (!isFresh)
                context.ReadRecord(context.NextRequestId());
            return RecordVerdict.Doubtful;
        }

        if (record.Replicas.Any(replica => replica.ReplicaId == context.Self))
            return RecordVerdict.Adopt;
        // A watch may be late or early. Only a fresh read removes a replica, and only if the record lists it as removed.
        if (!isFresh)
            context.ReadRecord(context.NextRequestId());
        else if (record.HasRemoved(context.Self))
            return RecordVerdict.Removed;
        else
            Disown(revision);
        return RecordVerdict.Doubtful;
    }

    // A replica that was added after the coordinator's backup was taken, for example, is not in the record. It may have acknowledged what nobody else has.
    private void Disown(long revision)
    {
        if (_disownedAt == revision)
            return;
        _disownedAt = revision;
        context.Emit(new Effect.Alarm(
            $"the shard's record, at revision {revision}, names this replica neither as a replica of the shard nor as one that was removed. "
            + "The coordinator may have been restored from an old copy. "
            + "The replica continues with the record that it knew; nothing is removed. Repair the record"));
    }
}
