using KvCluster.Node.Shards.Reads;
using KvCluster.Node.Telemetry;
using KvCluster.Replication;
using KvCluster.Replication.Protocol;
using KvCluster.Storage.Context;
using KvCluster.Storage.Control;

namespace KvCluster.Node.Shards.Loop;

/// <summary>Passes what the store in use reports to the replica's next turn. Called on the shard's writer executor.</summary>
/// <param name="core">Whether this replica leads.</param>
/// <param name="reads">Whether failed conditions may be answered.</param>
/// <param name="mailbox">Takes events for the core.</param>
/// <param name="telemetry">Told of durable records that this replica follows.</param>
/// <param name="life">Ended by the store's failure.</param>
internal sealed class StoreNotices(ReplicaCore core, ReplicaReads reads, ReplicaMailbox mailbox, ShardTelemetry telemetry, ReplicaLife life) : IStoreEvents
{
    private bool _durableRose;

    /// <summary>Whether more became durable since the last call.</summary>
    public bool TakeDurable()
    {
        var rose = _durableRose;
        _durableRose = false;
        return rose;
    }

    public void Durable(RecordRef record)
    {
        _durableRose = true;
        if (!core.Leads)
            telemetry.Durable(record.Etag);
        mailbox.Wake();
    }

    public void ControlWritten(ControlState state) => mailbox.Add(new Event.ControlWritten(state));

    public void Truncated(RecordRef last) => mailbox.Add(Event.Truncated.Instance);

    public void WorkQueued() => mailbox.Wake();

    public bool MayAnswerReads() => reads.MayAnswerConditions();

    public void Failed(Exception first) => life.Fail(first);
}
