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
        known.TryKeep(Record(4));
        known.TryKeep(Record(3));
        known.TryKeep(new ShardRecord { Shard = 2, Generation = 1 });
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
        known.TryKeep(Record(4));
        var other = Record(generation);
        (other.Recovery, other.Epoch) = (recovery, 99);
        known.TryKeep(other);
        Assert.Equal(isKept, known.Shards.Single().Epoch == 99);
    }

    /// <summary>Elections are frequent, and must not wait for the disk: epoch and leader are in the control files.</summary>
    [Fact]
    public void Keep_ACopyWithAnotherLeader_WritesNothing()
    {
        var known = Open();
        known.TryKeep(Record(4));
        var written = File.GetLastWriteTimeUtc(PathOf("shard-1"));
        File.SetLastWriteTimeUtc(PathOf("shard-1"), written - TimeSpan.FromDays(1));
        var elected = Record(4);
        (elected.Epoch, elected.Leader) = (9, 2);
        known.TryKeep(elected);
        Assert.Equal(written - TimeSpan.FromDays(1), File.GetLastWriteTimeUtc(PathOf("shard-1")));
    }

    [Fact]
    public void Keep_ClusterOfAnEarlierRecovery_ChangesNothing()
    {
        var known = Open();
        known.Keep(new ClusterRecord { ClusterId = "c", Recovery = 2 });
        known.Keep(new ClusterRecord { ClusterId = "c", Recovery = 1 });
        Assert.Equal(2UL, Open().Recovery.Number);
    }

    [Fact]
    public void Open_OfADamagedCopy_CountsItAsAbsentAndWritesItAgain()
    {
        Open().TryKeep(Record(4));
        File.WriteAllText(PathOf("shard-1"), "{ \"shard\": ");
        File.WriteAllText(PathOf("shard-7.new"), "an interrupted write");
        var known = Open();
        Assert.Empty(known.Shards);
        known.TryKeep(Record(2));
        Assert.Equal(2UL, Open().Shards.Single().Generation);
    }

    /// <summary>A digit flips on the disk, and what remains can be parsed. Such a copy would pass for the newest one.</summary>
    [Fact]
    public void Open_OfACopyWithAFlippedDigit_CountsItAsAbsent()
    {
        Open().TryKeep(Record(4));
        var text = File.ReadAllText(PathOf("shard-1"));
        Assert.Contains("\"4\"", text, StringComparison.Ordinal);
        File.WriteAllText(PathOf("shard-1"), text.Replace("\"4\"", "\"6\"", StringComparison.Ordinal));
        Directory.CreateDirectory(PathOf("shard-2"));
        Assert.Empty(Open().Shards);
    }

    /// <summary>Without it the node would follow a coordinator of an earlier recovery, whose leaders and replicas are others.</summary>
    [Theory]
    [InlineData("cluster")]
    [InlineData("bound")]
    public void Open_OfADamagedClusterRecordOrPromise_EndsTheStart(string name)
    {
        var known = Open();
        known.Keep(new ClusterRecord { ClusterId = "c", Recovery = 2 });
        Assert.Null(known.TryBind(new RecoveryClaim { Recovery = 3, RecoveryId = 9, Node = 1 }));
        File.WriteAllText(PathOf(name), File.ReadAllText(PathOf(name)).Replace("\"c\"", "\"d\"", StringComparison.Ordinal).Replace(
            "\"3\"", "\"4\"", StringComparison.Ordinal));
        var failure = Assert.Throws<DirectoryFormatException>(() => Open());
        Assert.Contains($"'known/{name}' is damaged", failure.Message, StringComparison.Ordinal);
        Assert.DoesNotContain('\n', failure.Message);
    }

    [Fact]
    public void Open_OfACopyWithoutAChecksum_CountsItAsDamaged()
    {
        Open().TryKeep(Record(4));
        File.WriteAllText(PathOf("shard-1"), "{ \"shard\": 1, \"generation\": \"4\" }\n");
        Assert.Empty(Open().Shards);
        File.WriteAllText(PathOf("cluster"), "{ \"cluster_id\": \"c\", \"recovery\": \"2\" }\n");
        Assert.Throws<DirectoryFormatException>(() => Open());
    }

    /// <summary>What a node has reported stays true until it has joined the recovery: it takes no record that is newer.</summary>
    [Fact]
    public void TryKeep_AfterTryBind_IsRefusedUntilTheRecoveryIsJoinedOrGivenUp()
    {
        var known = Open();
        known.Keep(new ClusterRecord { ClusterId = "c" });
        Assert.True(known.TryKeep(Record(4)));
        var claim = new RecoveryClaim { Recovery = 2, RecoveryId = 9, Node = 1 };
        Assert.Null(known.TryBind(claim));
        Assert.False(known.TryKeep(Record(5)));
        Assert.False(Open().TryKeep(Record(5)), "the promise is on the disk");
        Assert.Contains("bound to recovery 2", known.TryBind(new RecoveryClaim { Recovery = 2, RecoveryId = 10, Node = 2 }), StringComparison.Ordinal);
        Assert.Null(known.TryBind(claim));

        known.Release(new RecoveryClaim { Recovery = 2, RecoveryId = 10, Node = 2 });
        Assert.False(known.TryKeep(Record(5)), "another recovery has ended");
        known.Release(claim);
        Assert.True(known.TryKeep(Record(5)));
        Assert.Null(Open().Bound);

        Assert.Null(known.TryBind(claim));
        known.Keep(new ClusterRecord { ClusterId = "c", Recovery = 1 });
        Assert.False(known.TryKeep(Record(6)), "an earlier recovery is joined");
        known.Keep(new ClusterRecord { ClusterId = "c", Recovery = 2 });
        Assert.True(known.TryKeep(Record(6)));
        Assert.Contains("has joined recovery 2", known.TryBind(claim), StringComparison.Ordinal);
    }

    [Fact]
    public void TryKeep_LongAfterTryBind_IsPossibleAgain()
    {
        var time = new ManualTime();
        var known = KnownRecords.Open(LocalDisk.Instance, _temporary.Path, time);
        Assert.Null(known.TryBind(new RecoveryClaim { Recovery = 1, RecoveryId = 9, Node = 1 }));
        time.Advance(KnownRecords.BoundTimeMax - TimeSpan.FromSeconds(1));
        Assert.False(known.TryKeep(Record(4)));
        time.Advance(TimeSpan.FromSeconds(1));
        Assert.True(known.TryKeep(Record(4)));
        Assert.Null(Open().Bound);
    }

    private static ShardRecord Record(ulong generation) => new() { Shard = 1, Generation = generation };

    private static void Check(KnownRecords known)
    {
        Assert.Equal(1UL, known.Recovery.Number);
        Assert.Equal([(1U, 4UL), (2U, 1UL)], known.Shards.Select(static record => (record.Shard, record.Generation)).Order());
        Assert.Equal([(1U, 7UL), (3U, 0UL)], known.Nodes.Select(static node => (node.Node, node.Incarnation)));
    }

    private string PathOf(string name) => Path.Combine(_temporary.Path, "known", name);

    private KnownRecords Open() => KnownRecords.Open(LocalDisk.Instance, _temporary.Path);
}
