using KvCluster.Internal.V1;
using KvCluster.Replication.Protocol;
using KvCluster.Replication.State;

namespace KvCluster.Tests.Replication;

/// <summary>From which of the times that it heard a new leader continues.</summary>
public sealed class ShardTimesTests
{
    private readonly ListJournal _journal = new();
    private readonly ReplicaContext _context;

    public ShardTimesTests()
    {
        _journal.Append(1, 1);
        var record = new ShardRecord { Generation = 1, Epoch = 1 };
        record.Replicas.Add(new ReplicaRecord { Replica = 11, Node = 1, Created = true });
        _context = new ReplicaContext(
            new ReplicaStartup(new(1), 1, new HardState { ReplicaId = new(11), PromisedEpoch = 1 }, default, record, 1, 1, 0), _journal,
            new ReplicationOptions());
    }

    private ShardTimes Times => _context.ShardTimes;

    [Fact]
    public void OfLastRecord_IsTheGreatestThatWasHeardInItsEpoch_AndItsAge()
    {
        Assert.Equal(default, Times.OfLastRecord());
        Hear(1, 1_000, atUs: 100);
        // Sent before, and late.
        Hear(1, 900, atUs: 200);
        _context.NowUs = 5_100;
        Assert.Equal(new HeardShardTime(1_000, 5_000), Times.OfLastRecord());
        Hear(1, 0, atUs: 6_000);
        Assert.Equal(1_000, Times.OfLastRecord().Microseconds);
    }

    /// <summary>
    /// The leader of a later epoch may not have the records of this one, and counts by what it has: a key that was put by a record which it lacks would end
    /// early by its time.
    /// </summary>
    [Fact]
    public void OfLastRecord_WhenALaterEpochWasHeard_IsThatOfItsOwn()
    {
        Hear(1, 1_000, atUs: 100);
        Hear(2, 9_000, atUs: 200);
        Hear(2, 9_500, atUs: 300);
        _context.NowUs = 400;
        Assert.Equal(new HeardShardTime(1_000, 300), Times.OfLastRecord());
        // Now it has a record of that epoch.
        _journal.Append(2, 2);
        Assert.Equal(new HeardShardTime(9_500, 100), Times.OfLastRecord());
        _journal.Append(3, 3);
        Assert.Equal(default, Times.OfLastRecord());
    }

    [Fact]
    public void OfLastRecord_AfterEpochsWithoutRecords_IsStillThatOfItsOwn()
    {
        Hear(1, 1_000, atUs: 100);
        Hear(2, 5_000, atUs: 200);
        Hear(4, 7_000, atUs: 300);
        Hear(2, 8_000, atUs: 400);
        Assert.Equal(new HeardShardTime(1_000, 300), Times.OfLastRecord());
    }

    private void Hear(ulong epoch, long microseconds, long atUs)
    {
        _context.NowUs = atUs;
        Times.Hear(epoch, microseconds);
    }
}
