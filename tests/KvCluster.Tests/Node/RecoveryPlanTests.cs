using Google.Protobuf;
using KvCluster.Internal.V1;
using KvCluster.Node.CoordinatorRecovery;
using KvCluster.Node.Hosting;

namespace KvCluster.Tests.Node;

/// <summary>Which records a recovery puts, and when it refuses (F53). Each report is what a node has on disk.</summary>
public sealed class RecoveryPlanTests
{
    private const ulong Gap = RecoveryPlan.Gap;

    private static readonly ByteString History = Lineage.Create().ToByteString();

    [Fact]
    public void Of_NodesThatAllRestarted_RebuildsEveryRecordAndElectsAnew()
    {
        var record = Record(generation: 4, [1, 2, 3], epoch: 7, leader: 2);
        var plan = Plan(Node(1, record, promised: 7), Node(2, record, promised: 9, leaseMs: 700), Node(3, record, promised: 7));

        Assert.Empty(plan.Refusals);
        var planned = Assert.Single(plan.Shards);
        Assert.Equal(1UL, plan.Number);
        Assert.Equal(1UL, plan.Cluster!.Recovery);
        Assert.Equal(History, plan.Cluster.Lineage);
        Assert.Equal(1UL, planned.Record.Recovery);
        Assert.Equal(History, planned.Record.Lineage);
        Assert.Equal(4 + Gap, planned.Record.Generation);
        Assert.Equal(0UL, planned.Record.Leader);
        Assert.True(planned.Record.Epoch >= 9 + Gap, "the epoch is above every promise");
        Assert.Equal(record.Replicas.Select(static replica => replica.Replica), planned.Record.Replicas.Select(static replica => replica.Replica));
        Assert.All(planned.Record.Replicas, static replica => Assert.True(replica.Created));
        Assert.Equal(700UL, plan.WaitMs);
        Assert.Equal([1U, 2U, 3U], plan.Starts.Keys.Select(static node => node.Value).Order());
        Assert.All(plan.Starts.Values, static starts => Assert.Equal(5UL, starts.Starts));
    }

    [Fact]
    public void Of_ALeaderThatRuns_NamesItWithItsOwnEpochAndTheNextOnesAboveAll()
    {
        var record = Record(generation: 4, [1, 2, 3], epoch: 6, leader: 1);
        var plan = Plan(Node(1, record, promised: 7), Leads(Node(2, record, promised: 7, promisedTo: 2, leaseMs: 700), epoch: 7), Node(3, record, promised: 6));

        var planned = Assert.Single(plan.Shards);
        Assert.Empty(plan.Refusals);
        Assert.Equal(new NodeId(2), planned.Leader);
        Assert.Equal((7UL, 2UL, 99UL), (planned.Record.Epoch, planned.Record.Leader, planned.Record.LeaderIncarnation));
        Assert.True(planned.Record.EpochFloor >= 7 + Gap, "the next epoch is above every promise");
        // It goes on under its lease, so nobody waits for that.
        Assert.Equal(0UL, plan.WaitMs);
    }

    [Fact]
    public void Of_ALeaderBelowAPromise_LeavesItToTakeANewEpoch()
    {
        var record = Record(generation: 4, [1, 2, 3], epoch: 7, leader: 2);
        var plan = Plan(
            Node(1, record, promised: 8, promisedTo: 1), Leads(Node(2, record, promised: 7, promisedTo: 2), epoch: 7),
            Node(3, record, promised: 7, promisedTo: 2));

        var planned = Assert.Single(plan.Shards);
        Assert.Empty(plan.Refusals);
        Assert.Equal((8UL, 0UL, 0UL), (planned.Record.Epoch, planned.Record.Leader, planned.Record.LeaderIncarnation));
        Assert.True(planned.Record.EpochFloor >= 8 + Gap);
    }

    /// <summary>1, 2, 3, then 1, 2, 4, then 1, 4, 5: 2 and 3 are a majority of the first set, and lack what the last one has acknowledged.</summary>
    [Fact]
    public void Of_TwoSwapsOfWhichTheReachedNodesKnowOneAtMost_RefusesUntilAllNamedNodesAnswer()
    {
        var (first, second, third) = (Record(1, [1, 2, 3]), Record(3, [1, 2, 4], removed: [3]), Record(5, [1, 4, 5], removed: [3, 2]));
        var some = Plan(Node(2, second), Node(3, first));
        Assert.Contains(some.Refusals, static line => line.StartsWith("node 1 does not answer", StringComparison.Ordinal));
        Assert.Contains(some.Refusals, static line => line.StartsWith("node 4 does not answer", StringComparison.Ordinal));

        var all = Plan(Node(1, third), Node(2, second), Node(3, first), Node(4, third), Node(5, third));
        Assert.Empty(all.Refusals);
        Assert.Equal([1U, 4U, 5U], all.Shards.Single().Record.Replicas.Select(static replica => replica.Node));
        Assert.Equal([3UL, 2UL], all.Shards.Single().Record.Removed);
    }

    [Fact]
    public void Of_ANodeThatIsSilent_SaysWhyAndHowToGoOn()
    {
        var record = Record(1, [1, 2, 3]);
        var plan = RecoveryPlan.Of(
            new RecoveryFindings { Reports = [Node(1, record), Node(2, record)], Silent = new Dictionary<NodeId, string> { [new(3)] = "connection\nrefused" } },
            1);
        var line = Assert.Single(plan.Refusals);
        Assert.Contains("node 3 does not answer (connection", line, StringComparison.Ordinal);
        Assert.Contains("--without 3", line, StringComparison.Ordinal);
        Assert.DoesNotContain('\n', line);
    }

    /// <summary>It may run after all. Nothing that it acknowledges counts from then on, and nothing of its directory is used, whichever it has.</summary>
    [Fact]
    public void Of_ANodeThatIsGone_MarksItsReplicaAndKeepsItsLastStart()
    {
        var record = Record(1, [1, 2, 3]);
        var plan = Plan([3], Node(1, record, knows: [(3, (9UL << 32) | 7)]), Node(2, record));
        Assert.Empty(plan.Refusals);
        Assert.Equal([new NodeId(3)], plan.Shards.Single().Missing);
        Assert.Equal([false, false, true], plan.Shards.Single().Record.Replicas.Select(static replica => replica.Absent));
        Assert.True(
            plan.Shards.Single().Record.Replicas.Single(static replica => replica.Node == 3).Created, "its replica is never created again under its id");
        Assert.Equal(new NodeStarts { Starts = 9, Incarnation = (9UL << 32) | 7 }, plan.Starts[new(3)]);
        Assert.True(new DirectoryStarts(Start(7), Start(8)).IsOldCopy(plan.Starts[new(3)]), "a directory without its last start is an old copy");
        Assert.False(new DirectoryStarts(Start(4), Start(5)).IsOldCopy(plan.Starts[new(1)]), "the directory of a node that answered is its newest");
    }

    /// <summary>
    /// Copies of a record that was never changed do not say which replicas were created, because the mark changes no generation. Power loss takes the
    /// coordinator and the control file of 3. Created again, it would vote without what it has acknowledged.
    /// </summary>
    [Fact]
    public void Of_CopiesThatDoNotSayWhoWasCreated_CountsEveryVoterAsCreated()
    {
        var record = Record(1, [1, 2, 3]);
        foreach (var replica in record.Replicas)
            replica.Created = false;
        var marked = record.Clone();
        (marked.Replicas[1].Created, marked.Replicas[1].Creator) = (true, 77);
        var (damaged, gone) = (Node(3, record), Node(3, record));
        damaged.Replicas[0] = new KeptReplica { Damage = "its control file is missing or damaged" };
        gone.Replicas.Clear();
        foreach (var three in new[] { damaged, gone })
        {
            var plan = Plan(Node(1, record), Node(2, marked), three);
            Assert.Empty(plan.Refusals);
            Assert.All(plan.Shards.Single().Record.Replicas, static replica => Assert.True(replica.Created));
            Assert.Equal(77UL, plan.Shards.Single().Record.Replicas[1].Creator);
        }
    }

    /// <summary>
    /// A half-done change of settings: some nodes have an empty coordinator, and the others the real one, which may change records at any time.
    /// </summary>
    [Theory]
    [InlineData("", "{ }", "is therefore not lost")]
    [InlineData("does not answer: Unavailable", "", "cannot tell whether its coordinator has lost the cluster")]
    public void Of_ANodeWhoseCoordinatorHasNotLostTheCluster_IsRefused(string error, string cluster, string why)
    {
        var record = Record(1, [1, 2, 3]);
        var other = Node(2, record);
        other.Coordinator = new CoordinatorState { Error = error, Cluster = cluster, ClusterRevision = cluster.Length };
        var line = Assert.Single(Plan(Node(1, record), other, Node(3, record)).Refusals);
        Assert.StartsWith("node 2 ", line, StringComparison.Ordinal);
        Assert.Contains(why, line, StringComparison.Ordinal);
        other.Coordinator = null;
        Assert.Contains("its program is older", Assert.Single(Plan(Node(1, record), other, Node(3, record)).Refusals), StringComparison.Ordinal);
    }

    [Fact]
    public void Of_NodesWithTwoCoordinatorsThatBothHaveTheCluster_IsRefused()
    {
        var record = Record(1, [1, 2, 3]);
        NodeReport[] reports = [Node(1, record), Node(2, record), Node(3, record)];
        foreach (var report in reports)
            report.Coordinator = new CoordinatorState { Cluster = "held", ClusterRevision = report.Node == 3 ? 8 : 7 };
        var found = new RecoveryFindings { Reports = reports, HeldCluster = Cluster(0), HeldClusterText = "held", HeldClusterRevision = 7 };
        Assert.Contains("node 3 has another coordinator", Assert.Single(RecoveryPlan.Of(found, id: 5).Refusals), StringComparison.Ordinal);
        reports[2].Coordinator.ClusterRevision = 7;
        Assert.Empty(RecoveryPlan.Of(found, id: 5).Refusals);
    }

    /// <summary>Node 1 alone had the address of another etcd, and the operator was told of each of the others that it is wrong.</summary>
    [Fact]
    public void Of_AnAskingNodeThatAloneHasAnotherCoordinator_NamesThatNode()
    {
        var record = Record(1, [1, 2, 3]);
        NodeReport[] reports = [Node(1, record), Node(2, record), Node(3, record)];
        foreach (var report in reports.Skip(1))
            report.Coordinator = new CoordinatorState { Cluster = "held", ClusterRevision = 7 };
        Assert.StartsWith(
            "node 1, which was asked, has another coordinator than the nodes 2, 3, which all find the cluster in theirs", Assert.Single(Plan(reports).Refusals),
            StringComparison.Ordinal);

        // If it alone has the cluster's, the others have the wrong one, although they agree.
        foreach (var report in reports)
            report.Coordinator = report.Node == 1 ? new CoordinatorState { Cluster = "held", ClusterRevision = 7 } : new CoordinatorState();
        var refusals = RecoveryPlan.Of(
            new RecoveryFindings { Reports = reports, HeldCluster = Cluster(0), HeldClusterText = "held", HeldClusterRevision = 7 }, id: 5).Refusals;
        Assert.Equal(["node 2 has another coordinator", "node 3 has another coordinator"], refusals.Select(static line => line[..30]));
    }

    [Fact]
    public void Of_AReportThatBindsNobody_IsRefused()
    {
        var record = Record(1, [1, 2, 3]);
        var free = Node(2, record);
        free.Unbound = "its coordinator is another store";
        Assert.Contains(
            "node 2 does not take part: its coordinator is another store", Assert.Single(Plan(Node(1, record), free, Node(3, record)).Refusals),
            StringComparison.Ordinal);
    }

    /// <summary>Only the way from the node that asks is blocked. The others go on with it.</summary>
    [Fact]
    public void Of_ANodeNamedGoneThatAnotherNodeHears_IsRefused()
    {
        var record = Record(1, [1, 2, 3]);
        var hearing = Node(2, record);
        hearing.Hears.Add(3);
        Assert.Contains("but node 2 hears it", Assert.Single(Plan([3], Node(1, record), hearing).Refusals), StringComparison.Ordinal);
    }

    /// <summary>The shard moved from 4, 5, 6 to 1, 2, 3. Node 4 left first, so its copy names 5 and 6, which were removed from the cluster since.</summary>
    [Fact]
    public void Of_NodesThatLeftAndNoLongerExist_AsksForNobodyButTheMembersOfTheNewestRecord()
    {
        var (old, newest) = (Record(3, [4, 5, 6]), Record(9, [1, 2, 3], removed: [4, 5, 6]));
        NodeReport[] reports = [Node(1, newest), Node(2, newest), Node(3, newest), Node(4, old)];
        Assert.Empty(Plan(reports).Refusals);
        // Somebody may still list them. They have no replica, so they know nothing that counts, although no replica leads.
        reports[3].Nodes.Add([new NodeRecord { Node = 5 }, new NodeRecord { Node = 6 }]);
        Assert.Empty(Plan([5, 6], reports).Refusals);
        Assert.Contains(
            Plan([3, 5, 6], reports[0], reports[1], reports[3]).Refusals, static line => line.Contains("3 nodes are absent", StringComparison.Ordinal));
    }

    /// <summary>The recovery before may have assigned an epoch to a leader of which nobody tells.</summary>
    [Fact]
    public void Of_TwoRecoveriesInARow_RaisesTheFloorEachTime()
    {
        var record = Record(generation: 4, [1, 2, 3], epoch: 5, leader: 1);
        NodeReport[] Of(ShardRecord copy) => [Leads(Node(1, copy, promised: 5, promisedTo: 1), epoch: 5), Node(2, copy), Node(3, copy)];
        var first = Plan(Of(record)).Shards.Single().Record;
        var second = Plan(Of(first)).Shards.Single().Record;
        Assert.Equal(5UL, second.Epoch);
        Assert.True(second.EpochFloor >= first.EpochFloor + Gap);
    }

    [Fact]
    public void Of_AnyRecovery_HasANumberAndAnIdOfItsOwn()
    {
        var record = Record(1, [1, 2, 3]);
        NodeReport[] reports = [Node(1, record), Node(2, record), Node(3, record)];
        var plan = Plan(reports);
        Assert.Equal((1UL, 5UL, 5UL), (plan.Number, plan.Cluster!.RecoveryId, plan.Shards.Single().Record.RecoveryId));
        // Bound to this one, or to one that ended early.
        reports[1].Bound = new RecoveryClaim { Recovery = 1, RecoveryId = 5 };
        Assert.Equal(1UL, Plan(reports).Number);
        reports[1].Bound.RecoveryId = 6;
        Assert.Equal(2UL, Plan(reports).Number);
        Assert.Equal(
            8UL, RecoveryPlan.Of(new RecoveryFindings { Reports = reports, HeldClaim = new RecoveryClaim { Recovery = 7, RecoveryId = 6 } }, id: 5).Number);
    }

    [Fact]
    public void Of_NodesThatJoinedTwoRecoveriesOfOneNumber_IsRefused()
    {
        var record = Record(2 + Gap, [1, 2, 3], recovery: 1);
        var other = Node(3, record);
        other.Cluster.RecoveryId = 9;
        Assert.Contains(
            Plan(Node(1, record), Node(2, record), other).Refusals, static line => line.Contains("two recoveries with the number 1", StringComparison.Ordinal));
    }

    [Theory]
    [InlineData(new uint[] { 1 }, "answers")]
    [InlineData(new uint[] { 3, 8 }, "no node knows of it")]
    public void Of_ANodeNamedGoneByMistake_IsRefused(uint[] without, string why)
    {
        var record = Record(1, [1, 2, 3]);
        Assert.Contains(Plan(without, Node(1, record), Node(2, record)).Refusals, line => line.Contains(why, StringComparison.Ordinal));
    }

    [Fact]
    public void Of_AMajorityThatIsGone_IsRefused()
    {
        var record = Record(1, [1, 2, 3]);
        Assert.Contains(
            Plan([2, 3], Node(1, record)).Refusals, static line => line.StartsWith("only 1 of the 3 voters of shard 0 are there", StringComparison.Ordinal));
    }

    [Fact]
    public void Of_AVoterWhoseContentIsDamaged_DoesNotCountIt()
    {
        var record = Record(1, [1, 2, 3]);
        var damaged = Node(2, record);
        damaged.Replicas[0].Damage = "its control file cannot be read";
        Assert.Empty(Plan(Node(1, record), damaged, Node(3, record)).Refusals);
        Assert.Contains(Plan([3], Node(1, record), damaged).Refusals, static line => line.StartsWith("only 1 of the 3 voters", StringComparison.Ordinal));
    }

    /// <summary>The absent node may have made the learner a voter, and both may have acknowledged what nobody else has.</summary>
    [Fact]
    public void Of_AnAbsentNodeDuringAChangeOfReplicas_IsRefusedUnlessALeaderRuns()
    {
        var record = Record(2, [1, 2, 3], learners: [4]);
        var (one, two, four) = (Node(1, record, promised: 7, promisedTo: 1), Node(2, record), Node(4, record));
        Assert.Contains(Plan([3], one, two, four).Refusals, static line => line.Contains("its replicas were being changed", StringComparison.Ordinal));
        var led = Plan([3], Leads(one, epoch: 7), two, four);
        Assert.Empty(led.Refusals);
        Assert.Single(led.Shards.Single().Record.Replicas, static replica => replica.Learner);
    }

    [Fact]
    public void Of_TwoAbsentNodesWithoutALeader_IsRefused()
    {
        var record = Record(2, [1, 2, 3, 4, 5]);
        var one = Node(1, record, promised: 7, promisedTo: 1);
        Assert.Contains(
            Plan([4, 5], one, Node(2, record), Node(3, record)).Refusals, static line => line.Contains("2 nodes are absent", StringComparison.Ordinal));
        Assert.Empty(Plan([4, 5], Leads(one, epoch: 7), Node(2, record), Node(3, record)).Refusals);
    }

    [Fact]
    public void Of_TracesOfANewerRecord_IsRefused()
    {
        var record = Record(2, [1, 2, 3]);
        var unknownReplica = Node(3, record);
        unknownReplica.Replicas[0].Replica = 77;
        Assert.Contains(Plan(Node(1, record), Node(2, record), unknownReplica).Refusals, static line => line.Contains(
            "neither names nor lists as removed", StringComparison.Ordinal));
        Assert.Contains(Plan(Node(1, record), Node(2, record), Node(3, record, promised: 5, promisedTo: 77)).Refusals, static line => line.Contains(
            "has followed replica 4d", StringComparison.Ordinal));
        var ahead = Node(3, record);
        ahead.Replicas[0].Generation = 3;
        Assert.Contains(
            Plan(Node(1, record), Node(2, record), ahead).Refusals, static line => line.Contains("has seen generation 3", StringComparison.Ordinal));
        // A replica that was removed leaves its directory behind, and may have led.
        var swapped = Record(3, [1, 2, 4], removed: [3]);
        Assert.Empty(Plan(Node(1, swapped, promised: 5, promisedTo: 3), Node(2, swapped), Node(3, record), Node(4, swapped)).Refusals);
    }

    [Fact]
    public void Of_RecordsOfOneGenerationThatDiffer_IsRefused() =>
        Assert.Contains(
            Plan(Node(1, Record(2, [1, 2, 3])), Node(2, Record(2, [1, 2, 4])), Node(3, Record(2, [1, 2, 3])), Node(4, Record(2, [1, 2, 4]))).Refusals,
            static line => line.Contains("have generation 2 and differ", StringComparison.Ordinal));

    [Fact]
    public void Of_RangesThatDoNotCoverEveryKey_IsRefused()
    {
        var (low, high) = (Record(1, [1, 2, 3]), Record(1, [1, 2, 3], shard: 1));
        (low.End, high.Start) = (ByteString.CopyFromUtf8("m"), ByteString.CopyFromUtf8("m"));
        NodeReport[] Both() => [Node(1, low, high), Node(2, low, high), Node(3, low, high)];
        Assert.Empty(Plan(Both()).Refusals);
        Assert.Equal([0U, 1U], Plan(Both()).Shards.Select(static shard => shard.Record.Shard));
        Assert.Contains(Plan(Node(1, low), Node(2, low), Node(3, low)).Refusals, static line => line.Contains(
            "that of the last shard is missing", StringComparison.Ordinal));
        Assert.Contains(
            Plan(Node(1, high), Node(2, high), Node(3, high)).Refusals, static line => line.Contains("shard 1 does not begin", StringComparison.Ordinal));
        high.Start = ByteString.CopyFromUtf8("n");
        Assert.Contains(Plan(Both()).Refusals, static line => line.Contains("shard 1 does not begin", StringComparison.Ordinal));
    }

    [Fact]
    public void Of_AReplicaWhoseRecordNobodyHas_IsRefused()
    {
        var record = Record(1, [1, 2, 3]);
        var older = Node(1, record);
        older.Shards.Clear();
        foreach (var node in new[] { 2U, 3U })
            older.Nodes.Add(new NodeRecord { Node = node });
        var (two, three) = (Node(2, record), Node(3, record));
        Assert.Empty(Plan(older, two, three).Refusals);
        two.Shards.Clear();
        three.Shards.Clear();
        Assert.Contains(
            Plan(older, two, three).Refusals, static line => line.Contains("no node that answered has a copy of the shard's record", StringComparison.Ordinal));
    }

    [Fact]
    public void Of_NodesOfTwoLineagesOrAnotherCluster_IsRefused()
    {
        var record = Record(1, [1, 2, 3]);
        var other = Node(3, record);
        other.Cluster.Lineage = Lineage.Create().ToByteString();
        Assert.Contains(
            Plan(Node(1, record), Node(2, record), other).Refusals, static line => line.Contains("another cluster or lineage", StringComparison.Ordinal));
        var foreign = RecoveryPlan.Of(
            new RecoveryFindings
            {
                Reports = [Node(1, record), Node(2, record), Node(3, record)],
                HeldCluster = new ClusterRecord { ClusterId = "other", Lineage = History }
            },
            1);
        Assert.Contains(foreign.Refusals, static line => line.Contains("another cluster of this name", StringComparison.Ordinal));
    }

    /// <summary>
    /// A node with an empty directory had created a second cluster in the empty coordinator, and the refusals said neither which keys to delete nor what to do
    /// about that node.
    /// </summary>
    [Fact]
    public void Of_NodesOfWhichOneHasCreatedTheClusterAnew_NamesBothAndHowToUndoIt()
    {
        const string Keys = "/kvcluster/store/";
        var record = Record(1, [1, 2, 3]);
        var anew = Node(3, record);
        (anew.Cluster.ClusterId, anew.Cluster.Lineage) = ("anew", Lineage.Create().ToByteString());
        var refusals =
            RecoveryPlan.Of(new RecoveryFindings { Keys = Keys, Reports = [Node(1, record), Node(2, record), anew], HeldCluster = anew.Cluster }, 1).Refusals;
        Assert.Equal(2, refusals.Count);
        Assert.StartsWith("node 3 belongs to another cluster or lineage than node 1 (anew,", refusals[0], StringComparison.Ordinal);
        Assert.StartsWith("the coordinator has another cluster of this name (anew,", refusals[1], StringComparison.Ordinal);
        Assert.All(refusals, static line => Assert.Contains(
            $"move their data directories away, delete its keys (etcdctl del --prefix {Keys}), and run this again", line, StringComparison.Ordinal));
    }

    [Fact]
    public void Of_AnOldCopyOfADirectory_IsFoundByWhatOthersKnowOfItsStarts()
    {
        var record = Record(1, [1, 2, 3]);
        Assert.Contains(Plan(Node(1, record, knows: [(2, 6UL << 32)]), Node(2, record), Node(3, record)).Refusals, static line => line.StartsWith(
            "node 2 runs on an old copy", StringComparison.Ordinal));
    }

    /// <summary>
    /// The coordinator's data is lost again. A node without which it was rebuilt before is still an old copy; one that took part and has not heard of the end
    /// is not.
    /// </summary>
    [Theory]
    [InlineData(true)]
    [InlineData(false)]
    public void Of_ANodeThatHasNotJoinedTheLastRecovery_CountsOnlyIfItTookPart(bool wasAbsent)
    {
        var (recovered, old) = (Record(2 + Gap, [1, 2, 3], recovery: 1), Record(9, [1, 2, 3]));
        NodeReport[] reports = [Node(1, recovered), Node(2, recovered), Node(3, old)];
        uint[] absent = wasAbsent ? [3] : [];
        foreach (var joined in reports.Take(2))
            joined.Cluster.Absent.AddRange(absent);
        var plan = Plan(reports);
        Assert.Empty(plan.Refusals);
        Assert.Equal(2UL, plan.Number);
        Assert.Equal(absent, plan.Cluster!.Absent);
        Assert.Equal(absent, plan.Shards.Single().Missing.Select(static node => node.Value));
        Assert.Equal(wasAbsent, plan.Shards.Single().Record.Replicas[2].Absent);
        // Whoever took part counts, although only one node has joined.
        Assert.Empty(Plan(reports[0], Node(2, old), reports[2]).Refusals);
    }

    /// <summary>It has acted on no record since the recovery that it missed, so it has completed no change. Its data does not count all the same.</summary>
    [Fact]
    public void Of_ANodeThatMissedARecoveryAndAnswers_HidesNoChangeOfReplicas()
    {
        var (recovered, old) = (Record(2 + Gap, [1, 2, 3], learners: [4], recovery: 1), Record(9, [1, 2, 3]));
        NodeReport[] reports = [Node(1, recovered), Node(2, recovered), Node(3, old), Node(4, recovered)];
        foreach (var joined in reports.Where(static report => report.Node != 3))
            joined.Cluster.Absent.Add(3);
        Assert.Empty(Plan(reports).Refusals);
        Assert.Contains(
            Plan([2], reports[0], reports[2], reports[3]).Refusals, static line => line.StartsWith("only 1 of the 3 voters", StringComparison.Ordinal));
        reports[2].Replicas[0].PromisedLeader = 77;
        Assert.Contains(Plan(reports).Refusals, static line => line.Contains("has followed replica 4d", StringComparison.Ordinal));
    }

    /// <summary>An earlier recovery wrote some shards and ended. Since then a node has come back that knows a newer set.</summary>
    [Fact]
    public void Of_RecordsOfAnInterruptedRecovery_RaisesAboveThemAndTrustsNothingElse()
    {
        var newest = Record(5, [1, 2, 4], removed: [3]);
        var left = Record(3 + Gap, [1, 2, 3], recovery: 1);
        (left.Replicas[1].Absent, left.EpochFloor) = (true, 9 * Gap);
        // That one was made without node 2, and put what it knew of its starts.
        var starts = new Dictionary<NodeId, NodeStarts> { [new(2)] = Start(5 + Gap) };
        var plan = RecoveryPlan.Of(
            new RecoveryFindings
            {
                Reports = [Node(1, newest), Node(2, newest), Node(3, Record(3, [1, 2, 3])), Node(4, newest)], HeldShards = [left], HeldStarts = starts
            },
            1);
        Assert.Empty(plan.Refusals);
        Assert.Equal(2UL, plan.Number);
        var record = plan.Shards.Single().Record;
        Assert.Equal([1U, 2U, 4U], record.Replicas.Select(static replica => replica.Node));
        Assert.True(record.Generation > left.Generation);
        Assert.True(record.EpochFloor > left.EpochFloor);
        Assert.DoesNotContain(record.Replicas, static replica => replica.Absent);
    }

    [Fact]
    public void Of_ACoordinatorRestoredFromABackup_RaisesItsRecords()
    {
        var (backup, newest) = (Record(2, [1, 2, 3], epoch: 3), Record(4, [1, 2, 4], epoch: 8, removed: [3]));
        var found = new RecoveryFindings
        {
            Reports = [Node(1, newest), Node(2, newest), Node(3, backup), Node(4, newest)],
            HeldCluster = Cluster(0),
            HeldShards = [backup],
            HeldStarts = new Dictionary<NodeId, NodeStarts> { [new(1)] = Start(2) },
        };
        var plan = RecoveryPlan.Of(found, 1);
        Assert.Empty(plan.Refusals);
        Assert.Equal([1U, 2U, 4U], plan.Shards.Single().Record.Replicas.Select(static replica => replica.Node));
        Assert.Equal(5UL, plan.Starts[new(1)].Starts);
        // A coordinator that has counted more is right, and the directory is an old copy.
        var counted = RecoveryPlan.Of(found with { HeldStarts = new Dictionary<NodeId, NodeStarts> { [new(1)] = Start(6) } }, 1);
        Assert.Contains(counted.Refusals, static line => line.StartsWith("node 1 runs on an old copy", StringComparison.Ordinal));
        // So is one whose record is newer than those of the nodes.
        var ahead = RecoveryPlan.Of(found with { HeldShards = [Record(6, [1, 2, 3])] }, 1);
        Assert.Equal([1U, 2U, 3U], ahead.Shards.Single().Record.Replicas.Select(static replica => replica.Node));
    }

    [Fact]
    public void Of_ReplicasThatWereNotCreatedYet_LeavesThemToBeCreated()
    {
        var record = Record(2, [1, 2, 3], learners: [4]);
        record.Replicas.Single(static replica => replica.Node == 4).Created = false;
        var four = Node(4, record);
        four.Replicas.Clear();
        var plan = Plan(Node(1, record), Node(2, record), Node(3, record), four);
        Assert.Empty(plan.Refusals);
        Assert.False(plan.Shards.Single().Record.Replicas.Single(static replica => replica.Node == 4).Created);
    }

    /// <summary>The levels were raised just before the coordinator was lost. What one node has written since, older programs cannot read.</summary>
    [Fact]
    public void Of_NodesOfWhichOneHasHeardOfARaisedLevel_KeepsThatLevel()
    {
        var record = Record(generation: 4, [1, 2, 3]);
        var reports = ((uint[])[1, 2, 3]).Select(node => Node(node, record)).ToArray();
        foreach (var report in reports)
            (report.Cluster.FormatLevel, report.Cluster.ContractLevel) = (report.Node == 2 ? 2U : 1U, report.Node == 3 ? 2U : 1U);
        var plan = Plan(reports);
        Assert.Empty(plan.Refusals);
        // Older programs would drop what a recovery has put.
        Assert.Equal((3U, 2U), (plan.Cluster!.FormatLevel, plan.Cluster.ContractLevel));
        var held = Cluster(0);
        (held.FormatLevel, held.ContractLevel) = (4, 1);
        plan = RecoveryPlan.Of(new RecoveryFindings { Reports = reports, HeldCluster = held }, id: 5);
        Assert.Equal((4U, 2U), (plan.Cluster!.FormatLevel, plan.Cluster.ContractLevel));
    }

    private static RecoveryPlan Plan(params NodeReport[] reports) => Plan([], reports);

    private static RecoveryPlan Plan(uint[] without, params NodeReport[] reports) =>
        RecoveryPlan.Of(new RecoveryFindings { Reports = reports, Without = without.Select(static node => new NodeId(node)).ToHashSet() }, id: 5);

    private static NodeStarts Start(ulong number) => new() { Starts = number, Incarnation = (number << 32) | 3 };

    private static ClusterRecord Cluster(ulong recovery) => new() { ClusterId = "c1", Lineage = History, Recovery = recovery };

    // The replica on node N has the id N.
    private static ShardRecord Record(
        ulong generation, uint[] nodes, ulong epoch = 5, ulong leader = 0, uint[]? learners = null, ulong[]? removed = null, uint shard = 0,
        ulong recovery = 0) => new()
        {
            Shard = shard,
            Generation = generation,
            Epoch = epoch,
            Leader = leader,
            Lineage = History,
            Recovery = recovery,
            Replicas =
            {
                nodes.Select(static node => new ReplicaRecord { Replica = node, Node = node, Created = true }),
                (learners ?? []).Select(static node => new ReplicaRecord { Replica = node, Node = node, Created = true, Learner = true }),
            },
            Removed = { removed ?? [] },
        };

    private static NodeReport Node(uint node, params ShardRecord[] records) => ReportOf(node, records, promised: 5);

    private static NodeReport Node(
        uint node, ShardRecord record, ulong promised = 5, ulong promisedTo = 0, ulong leaseMs = 600, (uint Node, ulong Incarnation)[]? knows = null) =>
            ReportOf(node, [record], promised, promisedTo, leaseMs, knows);

    private static NodeReport ReportOf(
        uint node, ShardRecord[] records, ulong promised, ulong promisedTo = 0, ulong leaseMs = 600, (uint Node, ulong Incarnation)[]? knows = null) => new()
        {
            Node = node,
            Starts = Start(5),
            Cluster = Cluster(records[0].Recovery),
            Coordinator = new CoordinatorState(),
            Nodes = { (knows ?? []).Select(static known => new NodeRecord { Node = known.Node, Incarnation = known.Incarnation }) },
            Shards = { records },
            Replicas =
            {
                records.Select(record => new KeptReplica
                {
                    Shard = record.Shard,
                    Replica = node,
                    PromisedEpoch = promised,
                    PromisedLeader = promisedTo,
                    Generation = record.Generation,
                    Recovery = record.Recovery,
                    LeaseLongestMs = leaseMs,
                }),
            },
        };

    private static NodeReport Leads(NodeReport report, ulong epoch)
    {
        var leading = report.Clone();
        (leading.Replicas[0].LeadsEpoch, leading.Replicas[0].Incarnation) = (epoch, 99);
        return leading;
    }
}
