using KvCluster.Internal.V1;
using KvCluster.Node.Placement;
using KvCluster.Node.Runtime;
using KvCluster.Node.Shards;
using KvCluster.Replication.Digests;
using KvCluster.Storage.Control;
using KvCluster.Storage.Inspection;

namespace KvCluster.Tests.Node;

/// <summary>Each condition under which a copy that was set aside may be deleted, violated by itself.</summary>
public sealed class CopyRulesTests
{
    private const ulong Copy = 42;
    private const ulong Epoch = 7;
    private const ulong Generation = 5;
    private const long Revision = 100;
    private static readonly Lineage Line = Lineage.Create();
    private static readonly NodeIdentity Node = new("local", "id", new(3), 1, "http://n3") { Lineage = Line };
    private static readonly Etag Newest = new(6, 1_000);

    [Fact]
    public void WhyKept_WhenAllHolds_LetsTheLeaderBeAsked() => Assert.Null(WhyKept(Extent(), Record()));

    [Fact]
    public void WhyKept_WhenOneConditionIsViolated_KeepsTheCopy()
    {
        var control = Extent().Control!;
        AssertKept("cannot be determined: damaged", Extent() with { Newest = null, WhyUnknown = "damaged" }, Record());
        AssertKept("it is a copy of shard 9", Extent() with { Shard = new(9) }, Record());
        AssertKept("another lineage", Extent() with { Control = control with { ClusterHash = 1 } }, Record());
        AssertKept("another lineage", Extent(), Record(record => record.Lineage = Lineage.Create().ToByteString()));
        AssertKept("names it", Extent(), Record(record => record.Replicas.Add(new ReplicaRecord { Replica = Copy, Node = 3 })));
        AssertKept("does not list it as removed", Extent(), Record(record => record.Removed.Clear()));
        // As of a coordinator that was restored from a backup.
        AssertKept("is older", Extent() with { Control = control with { Generation = Generation + 1 } }, Record());
        AssertKept("is older", Extent() with { Control = control with { PromisedEpoch = Epoch + 1 } }, Record());
        AssertKept("is older", Extent() with { Control = control with { CoordinatorRevision = Revision + 1 } }, Record());
    }

    [Fact]
    public void WhyNotHeld_WhenAMajorityHasAllOfIt_IsNull()
    {
        Assert.Null(WhyNotHeld(View(), Record(), Newest));
        Assert.Null(WhyNotHeld(View(compared: [1]) with { Record = Record(record => record.Replicas.RemoveAt(1)) }, Record(), Newest));
    }

    [Fact]
    public void WhyNotHeld_WhenOneConditionIsViolated_SaysSo()
    {
        AssertNotHeld("not confirmed", View(), Record(), confirmed: null);
        AssertNotHeld("is not the one that its leader has", View(), Record(record => record.Generation--), Newest);
        AssertNotHeld("is not the one that its leader has", View(), Record(record => record.Epoch--), Newest);
        AssertNotHeld(
            "names its replica", View() with { Record = Record(record => record.Replicas.Add(new ReplicaRecord { Replica = Copy, Node = 3, Learner = true })) },
            Record(), Newest);
        AssertNotHeld("a majority has committed only", View(), Record(), new Etag(6, 999));
        AssertNotHeld("were not found equal", View() with { DigestsAgree = null }, Record(), Newest);
        AssertNotHeld("were not found equal", View(at: new Etag(6, 999)), Record(), Newest);
        // One of two voters, and a learner, which counts for nothing.
        AssertNotHeld("no majority of the present ones", View(compared: [1, 3]), Record(), Newest);
    }

    private static string? WhyKept(CopyExtent copy, ShardRecord record) => CopyRules.WhyKept(copy, new(1), Node, record, Revision);

    private static void AssertKept(string why, CopyExtent copy, ShardRecord record) =>
        Assert.Contains(why, WhyKept(copy, record) ?? "", StringComparison.Ordinal);

    private static string? WhyNotHeld(LeaderView view, ShardRecord record, Etag? confirmed) => CopyRules.WhyNotHeld(view, record, new(Copy), Newest, confirmed);

    private static void AssertNotHeld(string why, LeaderView view, ShardRecord record, Etag? confirmed) =>
        Assert.Contains(why, WhyNotHeld(view, record, confirmed) ?? "", StringComparison.Ordinal);

    private static CopyExtent Extent() => new(new(Copy), new(1), new ControlState
    {
        ReplicaId = new(Copy),
        Shard = new(1),
        ClusterHash = Node.ClusterHash,
        Generation = Generation,
        PromisedEpoch = Epoch,
        CoordinatorRevision = Revision,
    })
    {
        Newest = Newest,
    };

    // Two voters, and the learner that takes the place of the replica whose copy it is.
    private static ShardRecord Record(Action<ShardRecord>? change = null)
    {
        var record = new ShardRecord { Shard = 1, Generation = Generation, Epoch = Epoch, Leader = 1, Lineage = Line.ToByteString() };
        record.Replicas.Add(new ReplicaRecord { Replica = 1, Node = 1 });
        record.Replicas.Add(new ReplicaRecord { Replica = 2, Node = 2 });
        record.Replicas.Add(new ReplicaRecord { Replica = 3, Node = 3, Learner = true });
        record.Removed.Add(Copy);
        change?.Invoke(record);
        return record;
    }

    private static LeaderView View(Etag? at = null, ulong[]? compared = null) => new(new(1), Epoch, Newest, IsQuiescent: false, Record(), [])
    {
        DigestsAgree = new DigestsCompared(at ?? Newest, 2, AtUs: 0) { Voters = [.. (compared ?? [1, 2]).Select(static replica => new ReplicaId(replica))] },
    };
}
