using KvCluster.Internal.V1;
using KvCluster.Node.Hosting;
using KvCluster.Storage.Files;

namespace KvCluster.Tests.Node;

/// <summary>What a node keeps of the coordinator's records, from which they are rebuilt (F53).</summary>
public sealed class KnownRecordsTests : IDisposable
{
    private readonly TemporaryDirectory _temporary = new();

    public void Dispose() => _temporary.Dispose();

    [Fact]
    public void Keep_ThenOpen_HasTheNewestOfEach()
    {
        var known = Open();
        Assert.Null(known.Cluster);
        known.Keep(new ClusterRecord { ClusterId = "c", Recovery = 1 });
        known.Keep(Record(4));
        known.Keep(Record(3));
        known.Keep(new ShardRecord { Shard = 2, Generation = 1 });
        known.Keep([new NodeRecord { Node = 1, Incarnation = 7 }, new NodeRecord { Node = 3 }]);
        Check(known);
        Check(Open());
    }

    [Theory]
    [InlineData(0, 5, true)]
    [InlineData(0, 4, false)]
    [InlineData(1, 1, true)]
    public void Keep_AnotherCopy_ComparesRecoveryAndThenGeneration(ulong recovery, ulong generation, bool isKept)
    {
        var known = Open();
        known.Keep(Record(4));
        var other = Record(generation);
        (other.Recovery, other.Epoch) = (recovery, 99);
        known.Keep(other);
        Assert.Equal(isKept, known.Shards.Single().Epoch == 99);
    }

    /// <summary>Elections are frequent, and must not wait for the disk: epoch and leader are in the control files.</summary>
    [Fact]
    public void Keep_ACopyWithAnotherLeader_WritesNothing()
    {
        var known = Open();
        known.Keep(Record(4));
        var written = File.GetLastWriteTimeUtc(PathOf("shard-1"));
        File.SetLastWriteTimeUtc(PathOf("shard-1"), written - TimeSpan.FromDays(1));
        var elected = Record(4);
        (elected.Epoch, elected.Leader) = (9, 2);
        known.Keep(elected);
        Assert.Equal(written - TimeSpan.FromDays(1), File.GetLastWriteTimeUtc(PathOf("shard-1")));
    }

    [Fact]
    public void Keep_ClusterOfAnEarlierRecovery_ChangesNothing()
    {
        var known = Open();
        known.Keep(new ClusterRecord { ClusterId = "c", Recovery = 2 });
        known.Keep(new ClusterRecord { ClusterId = "c", Recovery = 1 });
        Assert.Equal(2UL, Open().Recovery);
    }

    [Fact]
    public void Open_OfADamagedCopy_CountsItAsAbsentAndWritesItAgain()
    {
        Open().Keep(Record(4));
        File.WriteAllText(PathOf("shard-1"), "{ \"shard\": ");
        File.WriteAllText(PathOf("shard-7.new"), "an interrupted write");
        var known = Open();
        Assert.Empty(known.Shards);
        known.Keep(Record(2));
        Assert.Equal(2UL, Open().Shards.Single().Generation);
    }

    private static ShardRecord Record(ulong generation) => new() { Shard = 1, Generation = generation };

    private static void Check(KnownRecords known)
    {
        Assert.Equal(1UL, known.Recovery);
        Assert.Equal([(1U, 4UL), (2U, 1UL)], known.Shards.Select(static record => (record.Shard, record.Generation)).Order());
        Assert.Equal([(1U, 7UL), (3U, 0UL)], known.Nodes.Select(static node => (node.Node, node.Incarnation)));
    }

    private string PathOf(string name) => Path.Combine(_temporary.Path, "known", name);

    private KnownRecords Open() => KnownRecords.Open(LocalDisk.Instance, _temporary.Path);
}
