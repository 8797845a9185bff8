using Google.Protobuf;
using KvCluster.Internal.V1;
using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;
using Event = KvCluster.Replication.Protocol.Event;

namespace KvCluster.Tests.Replication;

/// <summary>Snapshots as conversations: what a follower does beside its live state, and what a leader does when a transfer fails.</summary>
public sealed class SnapshotTranscriptTests
{
    private const long SecondUs = 1_000_000;
    private static readonly LogPosition Covers = new(new Etag(2, 4), 2);
    private static readonly LogPosition LeadersCovers = new(new Etag(1, 1), 1);

    [Fact]
    public void Follower_OvertakenBeforeTheLastChunkIsStored_KeepsTheNewerState()
    {
        // After the last chunk was passed on, a late append that reached further could be acknowledged and committed before the chunk was stored.
        // The snapshot was then installed over it, and acknowledged records were lost.
        var follower = Receiving(bytesTotal: 4);
        var append = Transcript.Append((1, 2), (2, 3), (2, 4), (2, 5));
        append.Committed = new V1.Etag { Epoch = 2, Change = 5 };
        follower.From(2, 2, frame => frame.Append = append).Durable();
        Assert.Contains("ack 2.5", follower.Shown(), StringComparison.Ordinal);
        follower.Step(new Event.SnapshotStored(Covers, 4));
        follower.Step(new Event.SnapshotVerified(Covers, 4, IsWhole: true));
        Assert.DoesNotContain("install the snapshot", follower.Shown(), StringComparison.Ordinal);
        Assert.Equal(new Etag(2, 5), follower.Journal.Last.Etag);
    }

    [Fact]
    public void Follower_OvertakenWhileItVerifies_DropsTheSnapshot()
    {
        var follower = Receiving(bytesTotal: 4);
        follower.Step(new Event.SnapshotStored(Covers, 4)).Shows("verify the snapshot at 2.4\nto 2: epoch 2 snapshot 2.4: 4 stored, 0 verified");
        follower.From(2, 2, frame => frame.Append = Transcript.Append((1, 2), (2, 3), (2, 4))).Shows("append up to 2.4");
        follower.Durable().Shows("to 2: epoch 2 snapshot 2.4: installed\ndrop the snapshot\nto 2: epoch 2 ack 2.4");
        follower.Step(new Event.SnapshotVerified(Covers, 4, IsWhole: true)).Shows("");
    }

    [Fact]
    public void Follower_WhileItVerifies_GrantsAndVotes()
    {
        // Verifying a large shard takes minutes. The replica was silent meanwhile, and if another one was down, nobody could be elected.
        var follower = Receiving(bytesTotal: 4);
        follower.Step(new Event.SnapshotStored(Covers, 4)).Shown();
        var heartbeat = new Heartbeat { Round = 1, LeaseUs = 500_000 };
        follower.From(2, 2, frame => frame.Heartbeat = heartbeat).Synced().From(2, 2, frame => frame.Heartbeat = heartbeat);
        Assert.EndsWith("heartbeat ack 1 granted", follower.Shown(), StringComparison.Ordinal);
        follower.Step(new Event.SnapshotVerified(Covers, 3, IsWhole: false)).Shows("to 2: epoch 2 snapshot 2.4: 4 stored, 3 verified");
        follower.Tick(553_000).Shown();
        follower.From(3, 3, frame => frame.Prepare = new Prepare()).Shows("control: promised 3 to 3, acknowledged 1.2, lease 553000");
        follower.Synced().Shows("to 3: epoch 3 prepared 1.2");
        // The newly elected leader may need the journal as it is, until it says that it leads.
        follower.Step(new Event.SnapshotVerified(Covers, 4, IsWhole: true)).Shows("");
        follower.From(3, 3, frame => frame.Probe = new Probe { Record = Transcript.Id(3, 9) });
        Assert.Contains("install the snapshot at 2.4", follower.Shown(), StringComparison.Ordinal);
    }

    // Every new epoch made followers drop a received snapshot, however far it was verified, and receive it again in full. With repeated elections a
    // large shard was never rebuilt.
    [Theory]
    [InlineData(3)]
    [InlineData(4)]
    [InlineData(5)]
    public void Follower_NewEpochWhileItVerifies_InstallsTheSnapshotAndContinues(ulong offeredChange)
    {
        var follower = Verifying(out var leaderFrame);
        // It is offered an older, the same and a newer snapshot than it has. It stores none of them and reports its progress.
        var offered = Chunk(0, 8);
        offered.Covers = new LogPosition(new Etag(2, offeredChange), offeredChange == 4 ? Covers.Checksum : 7).ToWire();
        var told = $"to 3: epoch 3 snapshot 2.{offeredChange}";
        leaderFrame(frame => frame.SnapshotChunk = offered).Shows($"{told}: 0 stored, 0 verified");
        follower.Step(new Event.SnapshotVerified(Covers, 3, IsWhole: false)).Shows($"{told}: 0 stored, 3 verified");
        follower.Step(new Event.SnapshotVerified(Covers, 4, IsWhole: true)).Shows($"{told}: 0 stored, 4 verified\ninstall the snapshot at 2.4");
        follower.Step(new Event.SnapshotInstalled(Covers));
        Assert.StartsWith($"{told}: installed", follower.Shown(), StringComparison.Ordinal);
    }

    [Fact]
    public void Follower_RepeatedNewEpochsWhileItVerifies_KeepsTheProgress()
    {
        var follower = Verifying(out _);
        for (var epoch = 4ul; epoch < 10; epoch++)
        {
            follower.From(epoch % 2 == 0 ? 2u : 3u, epoch, frame => frame.Heartbeat = new Heartbeat { Round = 1 }).Synced();
            follower.Step(new Event.SnapshotVerified(Covers, (long)epoch - 4, IsWhole: false));
        }
        Assert.DoesNotContain("drop the snapshot", follower.Shown(), StringComparison.Ordinal);
        follower.Step(new Event.SnapshotVerified(Covers, 4, IsWhole: true)).Shows("install the snapshot at 2.4");
    }

    [Fact]
    public void Follower_KeptSnapshotIsOvertakenByTheJournal_DropsIt()
    {
        var follower = Verifying(out var leaderFrame);
        leaderFrame(frame => frame.Append = Transcript.Append((1, 2), (2, 3), (2, 4))).Shows("append up to 2.4\nto 3: epoch 3 ack 1.2");
        follower.Durable().Shows("drop the snapshot\nto 3: epoch 3 ack 2.4");
        follower.Step(new Event.SnapshotVerified(Covers, 4, IsWhole: true)).Shows("");
    }

    [Fact]
    public void Follower_KeptSnapshotIsDamaged_TakesTheNewLeadersSnapshot()
    {
        var follower = Verifying(out var leaderFrame);
        var offered = Chunk(0, 8);
        offered.Covers = Transcript.Id(2, 5);
        leaderFrame(frame => frame.SnapshotChunk = offered).Shows("to 3: epoch 3 snapshot 2.5: 0 stored, 0 verified");
        // It reports no fault, because the pages of the offered snapshot may all be sound.
        follower.Step(new Event.SnapshotFailed(Covers, SnapshotFault.Damaged, "it happens")).Shows("to 3: epoch 3 snapshot 2.5: 0 stored, 0 verified");
        leaderFrame(frame => frame.SnapshotChunk = offered).Shows("store from 0 on");
    }

    // The next leader's pages are at other places, so further chunks would not match those received.
    [Fact]
    public void Follower_NewEpochWhileItReceives_DropsTheSnapshot()
    {
        var follower = Receiving(bytesTotal: 8);
        follower.Step(new Event.SnapshotStored(Covers, 4)).Shown();
        follower.From(3, 3, frame => frame.Heartbeat = new Heartbeat { Round = 1 });
        Assert.Contains("drop the snapshot", follower.Shown(), StringComparison.Ordinal);
    }

    // Nothing of an earlier epoch hinders it. The transfer completes in the first epoch that lasts long enough.
    [Fact]
    public void Follower_RepeatedNewEpochsWhileItReceives_StartsOverAtOnceAndCompletesInTheFirstThatLasts()
    {
        var follower = Receiving(bytesTotal: 8);
        for (var epoch = 3ul; epoch <= 8; epoch++)
        {
            follower.Step(new Event.SnapshotStored(Covers, 4)).Shown();
            var leader = epoch % 2 == 0 ? 2u : 3u;
            follower.From(leader, epoch, frame => frame.Probe = new Probe { Record = Transcript.Id(1, 2) }).Synced();
            Assert.Contains("drop the snapshot", follower.Shown(), StringComparison.Ordinal);
            follower.From(leader, epoch, frame => frame.SnapshotChunk = Chunk(0, 8)).Shows("store from 0 on");
        }
        follower.Step(new Event.SnapshotStored(Covers, 4)).Shows("to 2: epoch 8 snapshot 2.4: 4 stored, 0 verified");
        follower.From(2, 8, frame => frame.SnapshotChunk = Chunk(4, 8)).Shows("store from 4 on");
        follower.Step(new Event.SnapshotStored(Covers, 8)).Shows("verify the snapshot at 2.4\nto 2: epoch 8 snapshot 2.4: 8 stored, 0 verified");
        follower.Step(new Event.SnapshotVerified(Covers, 8, IsWhole: true))
            .Shows("to 2: epoch 8 snapshot 2.4: 8 stored, 8 verified\ninstall the snapshot at 2.4");
    }

    [Fact]
    public void Follower_Verified_IsBlockedOnlyWhileItInstalls()
    {
        var follower = Receiving(bytesTotal: 4);
        follower.Step(new Event.SnapshotStored(Covers, 4)).Shown();
        follower.Step(new Event.SnapshotVerified(Covers, 4, IsWhole: true))
            .Shows("to 2: epoch 2 snapshot 2.4: 4 stored, 4 verified\ninstall the snapshot at 2.4");
        follower.From(2, 2, frame => frame.Heartbeat = new Heartbeat { Round = 1 }).Shows("");
        follower.Step(new Event.SnapshotInstalled(Covers)).Shows("to 2: epoch 2 snapshot 2.4: installed\nto 2: epoch 2 ack 2.4");
        follower.From(2, 2, frame => frame.Heartbeat = new Heartbeat { Round = 2 }).Shows("to 2: epoch 2 heartbeat ack 2");
    }

    [Theory]
    [InlineData(nameof(SnapshotFault.NoRoom))]
    [InlineData(nameof(SnapshotFault.Damaged))]
    [InlineData(nameof(SnapshotFault.Storage))]
    public void Follower_SnapshotFails_ReportsItAndTakesTheNextOne(string fault)
    {
        var follower = Receiving(bytesTotal: 8);
        follower.Step(new Event.SnapshotFailed(Covers, Enum.Parse<SnapshotFault>(fault), "it happens")).Shows($"to 2: epoch 2 snapshot 2.4: {fault}");
        // Chunks still in flight do not start a new snapshot.
        follower.From(2, 2, frame => frame.SnapshotChunk = Chunk(4, 8)).Shows("to 2: epoch 2 snapshot 2.4: 0 stored, 0 verified");
        follower.From(2, 2, frame => frame.SnapshotChunk = Chunk(0, 8)).Shows("store from 0 on");
        follower.From(2, 2, frame => frame.Append = Transcript.Append((1, 2), (2, 3))).Shows("append up to 2.3");
    }

    [Fact]
    public void Follower_LateChunksOfAnotherSnapshot_DoNotStartOver()
    {
        var follower = Receiving(bytesTotal: 8);
        follower.Step(new Event.SnapshotStored(Covers, 4)).Shows("to 2: epoch 2 snapshot 2.4: 4 stored, 0 verified");
        var older = Chunk(0, 8);
        older.Covers = Transcript.Id(2, 3);
        follower.From(2, 2, frame => frame.SnapshotChunk = older).Shows("to 2: epoch 2 snapshot 2.3: 0 stored, 0 verified");
        follower.From(2, 2, frame => frame.SnapshotChunk = Chunk(4, 8)).Shows("store from 4 on");
    }

    [Fact]
    public void Follower_LeaderSendsWithoutEnd_HoldsNoMoreThanTwoWindows()
    {
        var follower = Receiving(bytesTotal: 1L << 40, bytes: 1 << 20);
        var stored = 1;
        for (var chunk = 1; chunk < 100; chunk++)
        {
            follower.From(2, 2, frame => frame.SnapshotChunk = Chunk(chunk << 20, 1L << 40, 1 << 20));
            stored += follower.Shown().Contains("store from", StringComparison.Ordinal) ? 1 : 0;
        }

        Assert.InRange(stored << 20, 2 << 20, 4 << 20);
    }

    [Fact]
    public void Leader_FollowerDiesInTheMiddle_ReleasesTheCheckpointAndProbesIt()
    {
        // The checkpoint stayed pinned for as long as the leader led, with all pages and all journal since.
        var leader = Sending();
        leader.From(3, 1, frame => frame.SnapshotAck = new SnapshotAck { Covers = LeadersCovers.ToWire(), BytesStored = 4 }).Shown();
        PassUs(leader, 59 * SecondUs);
        Assert.DoesNotContain("close the snapshot", leader.Shown(), StringComparison.Ordinal);
        PassUs(leader, 3 * SecondUs);
        var shown = leader.Shown();
        Assert.Contains("close the snapshot for 3", shown, StringComparison.Ordinal);
        Assert.Contains("to 3: epoch 1 probe", shown, StringComparison.Ordinal);
        // The follower has returned.
        PassUs(leader, 10 * SecondUs);
        leader.Shown();
        leader.From(3, 1, frame => frame.Match = new Match { Record = Transcript.Id(0, 5) });
        Assert.Contains("open a snapshot for 3", leader.Shown(), StringComparison.Ordinal);
    }

    [Fact]
    public void Leader_FollowerVerifiesForHours_Waits()
    {
        var leader = Sending();
        for (var verified = 0ul; verified < 100; verified++)
        {
            leader.From(3, 1, frame => frame.SnapshotAck = new SnapshotAck { Covers = LeadersCovers.ToWire(), BytesStored = 10, BytesVerified = verified });
            PassUs(leader, 50 * SecondUs);
        }

        var shown = leader.Shown();
        Assert.DoesNotContain("close the snapshot", shown, StringComparison.Ordinal);
        // The leader asks for its progress and sends nothing twice.
        Assert.Contains("to 3: epoch 1 asks for the snapshot at 1.1", shown, StringComparison.Ordinal);
        Assert.DoesNotContain("bytes from", shown, StringComparison.Ordinal);
        leader.From(3, 1, frame => frame.SnapshotAck = new SnapshotAck { Covers = LeadersCovers.ToWire(), Installed = true });
        Assert.StartsWith("close the snapshot for 3\nto 3: epoch 1 probe 1.1", leader.Shown(), StringComparison.Ordinal);
    }

    [Theory]
    [InlineData(nameof(SnapshotFault.NoRoom), 1)]
    [InlineData(nameof(SnapshotFault.Storage), 2)]
    public void Leader_SnapshotFailsAtTheFollower_StartsOverAfterAPause(string fault, int growth)
    {
        var leader = Sending();
        for (var (attempt, pauseUs) = (0, 5 * SecondUs); attempt < 3; attempt++, pauseUs *= growth)
        {
            leader.From(3, 1, frame => frame.SnapshotAck = new SnapshotAck { Covers = LeadersCovers.ToWire(), Fault = Enum.Parse<SnapshotFault>(fault) });
            leader.Shows("close the snapshot for 3\nto 3: epoch 1 probe 1.2");
            leader.From(3, 1, frame => frame.Match = new Match { Record = Transcript.Id(0, 5) }).Shows("");
            PassUs(leader, pauseUs - SecondUs);
            Assert.DoesNotContain("open a snapshot", leader.Shown(), StringComparison.Ordinal);
            PassUs(leader, 2 * SecondUs);
            leader.Shown();
            leader.From(3, 1, frame => frame.Match = new Match { Record = Transcript.Id(0, 5) }).Shows("open a snapshot for 3");
            leader.Step(new Event.SnapshotOpened(new(3), LeadersCovers, 10)).Shows("to 3: epoch 1 10 bytes from 0 on");
        }
    }

    [Fact]
    public void Leader_FollowerFindsTheSnapshotDamaged_ChecksItsOwnPages()
    {
        var leader = Sending();
        leader.From(3, 1, frame => frame.SnapshotAck = new SnapshotAck { Covers = LeadersCovers.ToWire(), Fault = SnapshotFault.Damaged });
        leader.Shows("check the own pages\nclose the snapshot for 3\nto 3: epoch 1 probe 1.2");
    }

    [Fact]
    public void Leader_PinIsTakenBack_StartsOverLater()
    {
        var leader = Sending();
        leader.Step(new Event.SnapshotLost(new(3), Covers, "of another one")).Shows("");
        leader.Step(new Event.SnapshotLost(new(3), LeadersCovers, "the disk is full")).Shows("close the snapshot for 3\nto 3: epoch 1 probe 1.2");
    }

    private static SnapshotChunk Chunk(long offset, long bytesTotal, int bytes = 4) =>
        new() { Covers = Covers.ToWire(), Offset = (ulong)offset, BytesTotal = (ulong)bytesTotal, Data = ByteString.CopyFrom(new byte[bytes]) };

    // Replica 1 follows replica 2 in epoch 2, both have 1.2, and it has passed on the first chunk.
    private static Transcript Receiving(long bytesTotal, int bytes = 4)
    {
        var control = new HardState { ReplicaId = new(1), PromisedEpoch = 1, PromisedLeader = new(3), PromisedIncarnation = 30 };
        var replica = new Transcript(journal => journal.Append(1, 2), control, epoch: 1, leader: 3);
        replica.From(2, 2, frame => frame.Probe = new Probe { Record = Transcript.Id(1, 2) }).Synced().Shown();
        replica.From(2, 2, frame => frame.SnapshotChunk = Chunk(0, bytesTotal, bytes)).Shows("store from 0 on");
        return replica;
    }

    // It has the whole snapshot of epoch 2 and verifies it. Replica 3 now leads epoch 3, and the frames come from it.
    private static Transcript Verifying(out Func<Action<Frame>, Transcript> leaderFrame)
    {
        var replica = Receiving(bytesTotal: 4);
        replica.Step(new Event.SnapshotStored(Covers, 4)).Shown();
        replica.From(3, 3, frame => frame.Heartbeat = new Heartbeat { Round = 1 }).Synced();
        Assert.DoesNotContain("drop the snapshot", replica.Shown(), StringComparison.Ordinal);
        leaderFrame = fill => replica.From(3, 3, fill);
        return replica;
    }

    // Replica 1 leads epoch 1, replica 2 follows, and replica 3 receives a snapshot of 10 bytes that covers 1.1.
    private static Transcript Sending()
    {
        var replica = new Transcript();
        replica.Tick().Read().From(2, 0, frame => frame.PreVoteAnswer = new PreVoteAnswer { Number = 1, Granted = true }).Set(SetOutcome.Won).Synced();
        replica.From(2, 1, frame => frame.Prepared = new Prepared { Last = Transcript.Id(0, 0) });
        replica.Step(new Event.RecordAppended(replica.Journal.Append(1, 1)));
        replica.From(2, 1, frame => frame.Match = new Match { Found = true, Record = Transcript.Id(0, 0) });
        replica.Step(new Event.BodiesSent(new(2), 1, LeadersCovers, 4)).Durable();
        replica.Step(new Event.RecordAppended(replica.Journal.Append(1, 2))).Durable();
        replica.Step(new Event.BodiesSent(new(2), 1, new LogPosition(new Etag(1, 2), 1), 4));
        replica.From(2, 1, frame => frame.Ack = new Ack { Durable = new V1.Etag { Epoch = 1, Change = 2 } });
        Assert.True(replica.Journal.TryFind(LeadersCovers.Etag, out var covers));
        replica.Journal.Trim(covers);
        replica.Shown();
        replica.From(3, 1, frame => frame.Match = new Match { Record = Transcript.Id(0, 5) }).Shows("open a snapshot for 3");
        replica.Step(new Event.SnapshotOpened(new(3), LeadersCovers, 10)).Shows("to 3: epoch 1 10 bytes from 0 on");
        return replica;
    }

    // Time passes while replica 2 answers.
    private static void PassUs(Transcript leader, long us)
    {
        for (var passed = 0L; passed < us; passed += SecondUs / 2)
        {
            leader.Tick(SecondUs / 2);
            leader.From(2, 1, frame => frame.HeartbeatAck = new HeartbeatAck { Durable = new V1.Etag { Epoch = 1, Change = 2 } });
        }
    }
}
