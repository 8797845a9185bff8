using Google.Protobuf;
using KvCluster.Internal.V1;
using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;
using Event = KvCluster.Replication.Protocol.Event;

namespace KvCluster.Tests.Replication;

/// <summary>A follower whose leader compares trees: when it takes its digest, and what makes it stop for good.</summary>
public sealed class DigestAnswersTests
{
    [Fact]
    public void Ask_BeforeTheRecordIsCommitted_TakesTheDigestExactlyThere()
    {
        var replica = Following();
        replica.From(2, 2, frame => frame.Append = Transcript.Append((1, 2), (2, 3), (2, 4), (2, 5))).Shows("append up to 2.5");
        replica.Durable().Shows("to 2: epoch 2 ack 2.5");
        Ask(replica, 1, 2, 4).Shows("");
        Commit(replica, 2, 5);
        replica.Shows(
            "to 2: epoch 2 heartbeat ack 1\ncommit 2.4\ntake the digest at 2.4\ncommit 2.5\ncontrol: promised 2 to 2, acknowledged 2.5, lease 553000");
        replica.Step(new Event.DigestTaken(replica.TakeId, Digest("abc"))).Shows("to 2: epoch 2 digest 1 is abc");
        // A lost report is sent again without another computation.
        Ask(replica, 1, 2, 4).Shows("to 2: epoch 2 digest 1 is abc");
    }

    [Fact]
    public void Ask_AfterTheRecordWasPassed_ReportsNone()
    {
        var replica = Following();
        Commit(replica, 1, 2);
        replica.Synced();
        Ask(replica, 1, 1, 1);
        Assert.EndsWith("to 2: epoch 2 digest 1 is none", replica.Shown(), StringComparison.Ordinal);
    }

    [Fact]
    public void Ask_ForANewComparison_ReplacesTheLastOneEvenAtTheSameRecord()
    {
        var replica = AtRecord();
        Ask(replica, 1, 1, 2).Shows("take the digest at 1.2");
        var first = replica.TakeId;
        Ask(replica, 2, 1, 2).Shows("drop the digest\ntake the digest at 1.2");
        replica.Step(new Event.DigestTaken(first, Digest("old"))).Shows("");
        replica.Step(new Event.DigestTaken(replica.TakeId, Digest("new"))).Shows("to 2: epoch 2 digest 2 is new");
        // Late: it was overtaken by the newer question.
        Ask(replica, 1, 1, 2).Shows("");
    }

    [Fact]
    public void Epoch_ThatEnds_ForgetsTheDigest()
    {
        var replica = AtRecord();
        Ask(replica, 1, 1, 2).Shows("take the digest at 1.2");
        replica.From(3, 3, frame => frame.Heartbeat = new Heartbeat { Round = 1 });
        Assert.Contains("drop the digest", replica.Shown(), StringComparison.Ordinal);
        replica.Step(new Event.DigestTaken(replica.TakeId, Digest("abc"))).Shows("");
    }

    [Fact]
    public void Differs_ForTheDigestThatItReported_QuarantinesIt()
    {
        var replica = Reported();
        replica.From(2, 2, frame => frame.DigestDiffers = new DigestDiffers { Number = 1, Reported = Digest("abc"), Expected = Digest("xyz") });
        replica.Shows("quarantine: its trees at 00000000-0000-0001-0000-000000000002 have the digest 616263, but the majority's have 78797a");
        replica.Tick(10_000_000).Shows("");
        Assert.Equal(ReplicaRole.Stopped, replica.Core.Role);
    }

    [Theory]
    [InlineData(2ul, 2ul, 1ul, "other")]
    [InlineData(2ul, 2ul, 2ul, "abc")]
    [InlineData(3ul, 2ul, 1ul, "abc")]
    [InlineData(2ul, 1ul, 1ul, "abc")]
    public void Differs_ForAnyOtherDigest_ChangesNothing(ulong sender, ulong epoch, ulong number, string reported)
    {
        var replica = Reported();
        replica.From(
            sender, epoch, frame => frame.DigestDiffers = new DigestDiffers { Number = number, Reported = Digest(reported), Expected = Digest("xyz") });
        Assert.DoesNotContain("quarantine", replica.Shown(), StringComparison.Ordinal);
        Assert.Equal(ReplicaRole.Follower, replica.Core.Role);
    }

    [Fact]
    public void Differs_AfterASnapshotReplacedItsTrees_ChangesNothing()
    {
        var replica = Reported();
        var chunk = new SnapshotChunk { Covers = Transcript.Id(2, 9), BytesTotal = 1, Data = Digest("s") };
        replica.From(2, 2, frame => frame.SnapshotChunk = chunk);
        var covers = new LogPosition(new Etag(2, 9), 2);
        replica.Step(new Event.SnapshotStored(covers, 1));
        replica.Step(new Event.SnapshotVerified(covers, 1, IsWhole: true)).Synced();
        Assert.Contains("install", replica.Shown(), StringComparison.Ordinal);
        replica.Step(new Event.SnapshotInstalled(covers));
        replica.From(2, 2, frame => frame.DigestDiffers = new DigestDiffers { Number = 1, Reported = Digest("abc"), Expected = Digest("xyz") });
        Assert.DoesNotContain("quarantine", replica.Shown(), StringComparison.Ordinal);
    }

    private static ByteString Digest(string text) => ByteString.CopyFromUtf8(text);

    private static Transcript Ask(Transcript replica, ulong number, ulong epoch, ulong change) =>
        replica.From(2, 2, frame => frame.DigestAsk = new DigestAsk { Number = number, Etag = new V1.Etag { Epoch = epoch, Change = change } });

    private static Transcript Commit(Transcript replica, ulong epoch, ulong change) =>
        replica.From(
            2, 2, frame => frame.Heartbeat = new Heartbeat { Round = 1, LeaseUs = 500_000, Committed = new V1.Etag { Epoch = epoch, Change = change } });

    // Replica 1 follows replica 2 in epoch 2; both have 1.2.
    private static Transcript Following()
    {
        var replica = new Transcript(
            journal => journal.Append(1, 2), new HardState { ReplicaId = new(1), PromisedEpoch = 1, PromisedLeader = new(3), PromisedIncarnation = 30 },
            epoch: 1, leader: 3);
        replica.From(2, 2, frame => frame.Probe = new Probe { Record = Transcript.Id(1, 2) }).Synced();
        _ = replica.Shown();
        return replica;
    }

    private static Transcript AtRecord()
    {
        var replica = Following();
        Commit(replica, 1, 2).Synced();
        _ = replica.Shown();
        return replica;
    }

    private static Transcript Reported()
    {
        var replica = AtRecord();
        Ask(replica, 1, 1, 2);
        replica.Step(new Event.DigestTaken(replica.TakeId, Digest("abc"))).Shows("take the digest at 1.2\nto 2: epoch 2 digest 1 is abc");
        return replica;
    }
}
