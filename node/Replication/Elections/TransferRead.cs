using KvCluster.Internal.V1;
using KvCluster.Replication.State;

namespace KvCluster.Replication.Elections;

/// <summary>
/// The target's preparation for a transfer: the shard's record, read while its leader still serves, so that no read is needed while nobody does. The leader's
/// side is <c>LeaderTransfer</c>.
/// </summary>
internal sealed class TransferRead(ReplicaContext context)
{
    private long _readId;
    private (ShardRecord Record, long Revision, ulong Epoch)? _read;

    /// <summary>The leader of the promised epoch intends to transfer to this replica.</summary>
    public void Begin()
    {
        if (_readId != 0)
            return;
        _readId = context.NextRequestId();
        context.ReadRecord(_readId);
    }

    /// <summary>The record was read. False if for something else.</summary>
    public bool TryEnd(long readId, ShardRecord? record, long revision)
    {
        if (readId != _readId)
            return false;
        _readId = 0;
        // If the coordinator did not answer, the leader asks again.
        if (record is null)
            return true;
        _read = (record, revision, context.Promised);
        var ready = context.FrameTo(context.Control.Wanted.PromisedLeader, context.Promised);
        ready.TransferReady = new TransferReady();
        context.Send(ready);
        return true;
    }

    /// <summary>Gives the record if it was read in the promised epoch.</summary>
    public bool TryGet(out ShardRecord record, out long revision)
    {
        (record, revision) = _read is { } read ? (read.Record, read.Revision) : (null!, 0);
        return _read?.Epoch == context.Promised && !context.CoordinatorDoubted;
    }
}
