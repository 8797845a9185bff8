using KvCluster.Internal.V1;
using KvCluster.Replication.Leading;
using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;
using Event = KvCluster.Replication.Protocol.Event;

namespace KvCluster.Tests.Replication;

/// <summary>The protocol as conversations of one replica, in the order in which they must happen.</summary>
public sealed class ReplicaCoreTranscriptTests
{
    [Fact]
    public void FirstLeader_OfANewShard_CampaignsAtOnceAndServesWhenItsEpochOpenRecordCommits()
    {
        var replica = Leading();
        replica.Shows("");
        // The lease begins when the round that a follower granted was sent.
        replica.From(2, 1, frame => frame.HeartbeatAck = new HeartbeatAck { Round = 1, Granted = true, Durable = new V1.Etag { Epoch = 1, Change = 1 } });
        Assert.Equal(1_000_000 + 500_000, replica.Core.LeaseEndUs);
    }

    [Fact]
    public void Leader_FencedByAHigherEpoch_ClearsItsLeaseAndStops()
    {
        var replica = Leading();
        replica.Step(new Event.ReadArrived(1));
        replica.Shows("to 2: epoch 1 heartbeat 2 committed 1.1");
        replica.From(2, 4, frame => frame.Fenced = new Fenced());
        replica.Shows("reads up to 1 refused\nstop serving\nstop leading");
        Assert.Equal(0, replica.Core.LeaseEndUs);
    }

    /// <summary>
    /// A candidate claimed epoch 2 while this replica won epoch 1, and gave up. Callers go by the newest claim, so some of them do not find the leader of an
    /// older one as long as that stands.
    /// </summary>
    [Fact]
    public void Leader_OfAnEpochAboveWhichOneWasClaimedBefore_ClaimsTheNext()
    {
        var replica = new Transcript();
        replica.Tick().Shows("read the record");
        replica.Read().Shows("to 2: epoch 0 prevote\nto 3: epoch 0 prevote");
        replica.From(2, 0, frame => frame.PreVoteAnswer = new PreVoteAnswer { Number = 1, Granted = true }).Shows("set epoch 1 leader 1 if revision 5");
        replica.Set(SetOutcome.Won).Shows("to 2: epoch 1 prepare\nto 3: epoch 1 prepare\ncontrol: promised 1 to 1, acknowledged 0.0, lease 0");
        var claimed = replica.Record.Clone();
        (claimed.Epoch, claimed.Leader, claimed.LeaderIncarnation) = (2, 3, 30);
        replica.Step(new Event.ShardRecordRead(0, claimed, 7)).Shows("");
        replica.Synced().Shows("");
        replica.From(2, 1, frame => frame.Prepared = new Prepared { Last = Transcript.Id(0, 0) }).Shows("start leading 1");
        replica.Step(new Event.RecordAppended(replica.Journal.Append(1, 1))).Shown();
        replica.From(2, 1, frame => frame.Match = new Match { Found = true, Record = Transcript.Id(0, 0) }).Shows("to 2: epoch 1 bodies after 0.0");
        replica.Step(new Event.BodiesSent(new(2), 1, new LogPosition(new Etag(1, 1), 1), 4));
        replica.Durable().From(2, 1, frame => frame.Ack = new Ack { Durable = new V1.Etag { Epoch = 1, Change = 1 } }).Shows("commit 1.1\nserve");
        Assert.Contains("read the record", replica.Tick(new ReplicationOptions().TimeoutMaxUs).Shown(), StringComparison.Ordinal);
        replica.Step(new Event.ShardRecordRead(replica.RequestId, claimed, 7));
        Assert.Contains("set epoch 3 leader 1 if revision 7", replica.Shown(), StringComparison.Ordinal);
    }

    [Fact]
    public void Replica_ToldOfAnEpochThatWasNeverAssigned_Continues()
    {
        var leader = Leading();
        leader.From(2, ulong.MaxValue, frame => frame.Fenced = new Fenced()).Shows("");
        leader.From(2, ulong.MaxValue, frame => frame.Heartbeat = new Heartbeat()).Shows("");
        leader.Step(new Event.ReadArrived(1));
        leader.Shows("to 2: epoch 1 heartbeat 2 committed 1.1");
        var follower = Following();
        follower.From(3, ulong.MaxValue, frame => frame.Prepare = new Prepare()).Shows("");
        follower.From(2, 2, frame => frame.Append = Transcript.Append((1, 2), (2, 3))).Shows("append up to 2.3");
    }

    // After one such frame, the leader counted a follower for every record of its epoch. With both followers gone, it acknowledged records that only
    // its own disk held.
    [Fact]
    public void Leader_ToldOfRecordsThatItHasNotWritten_DropsTheFrameAndRaisesAnAlarm()
    {
        var beyond = new V1.Etag { Epoch = 1, Change = ulong.MaxValue };
        var leader = Leading();
        leader.From(2, 1, frame => frame.Ack = new Ack { Durable = beyond }).Shows("alarm");
        leader.From(2, 1, frame => frame.HeartbeatAck = new HeartbeatAck { Round = 1, Granted = true, Durable = beyond }).Shows("alarm");
        leader.From(2, 1, frame => frame.Match = new Match { Durable = beyond }).Shows("alarm");
        Assert.Equal(0, leader.Core.LeaseEndUs);
    }

    [Fact]
    public void Read_IsConfirmedOnlyByARoundSentAfterItArrived()
    {
        var replica = Leading();
        replica.Step(new Event.ReadArrived(1));
        replica.Shows("to 2: epoch 1 heartbeat 2 committed 1.1");
        replica.From(2, 1, frame => frame.HeartbeatAck = new HeartbeatAck { Round = 1 }).Shows("");
        replica.From(2, 1, frame => frame.HeartbeatAck = new HeartbeatAck { Round = 2 }).Shows("reads up to 1 confirmed");
    }

    /// <summary>
    /// The follower that answered the round before is asked alone. If it has stopped, the others are asked soon, and then the one that answers.
    /// </summary>
    [Fact]
    public void ReadRound_ThatItsFollowerDoesNotAnswer_AsksAll()
    {
        var replica = Leading();
        replica.Step(new Event.ReadArrived(1)).Shows("to 2: epoch 1 heartbeat 2 committed 1.1");
        replica.Step(new Event.ReadArrived(2)).Shows("");
        replica.Tick(10_000).Shows("to 2: epoch 1 heartbeat 3 committed 1.1\nto 3: epoch 1 heartbeat 3 committed 1.1");
        replica.From(3, 1, frame => frame.HeartbeatAck = new HeartbeatAck { Round = 3 }).Shows("reads up to 2 confirmed");
        replica.Step(new Event.ReadArrived(3)).Shows("to 3: epoch 1 heartbeat 4 committed 1.1");
        replica.From(3, 1, frame => frame.HeartbeatAck = new HeartbeatAck { Round = 4 }).Shows("reads up to 3 confirmed");
        // Rounds that the clock asks for still go to all.
        replica.Tick(90_000).Shows("to 2: epoch 1 heartbeat 5 committed 1.1\nto 3: epoch 1 heartbeat 5 committed 1.1\nto 3: epoch 1 probe 0.0");
    }

    [Fact]
    public void Follower_AnswersOnlyWhenItsPromiseIsSynced()
    {
        var replica = Following();
        replica.From(2, 2, frame => frame.Append = Transcript.Append((1, 2), (2, 3)));
        replica.Shows("append up to 2.3");
        replica.Durable().Shows("to 2: epoch 2 ack 2.3");
        // Before it gives its first grant, it syncs that grant as its longest one.
        var heartbeat = new Heartbeat { Round = 7, LeaseUs = 500_000, Committed = new V1.Etag { Epoch = 2, Change = 9 } };
        replica.From(2, 2, frame => frame.Heartbeat = heartbeat);
        replica.Shows("to 2: epoch 2 heartbeat ack 7\ncommit 2.3\ncontrol: promised 2 to 2, acknowledged 2.3, lease 553000");
        replica.Synced().From(2, 2, frame => frame.Heartbeat = heartbeat).Shows("to 2: epoch 2 heartbeat ack 7 granted");
    }

    [Fact]
    public void Prepare_DuringAGrant_IsHeldUntilItEnds()
    {
        var replica = Following();
        var heartbeat = new Heartbeat { Round = 1, LeaseUs = 500_000 };
        replica.From(2, 2, frame => frame.Heartbeat = heartbeat).Synced().From(2, 2, frame => frame.Heartbeat = heartbeat);
        replica.Shows("to 2: epoch 2 heartbeat ack 1\ncontrol: promised 2 to 2, acknowledged 1.2, lease 553000\nto 2: epoch 2 heartbeat ack 1 granted");
        replica.From(3, 3, frame => frame.Prepare = new Prepare()).Shows("");
        replica.From(2, 2, frame => frame.Heartbeat = heartbeat).Shows("to 2: epoch 2 heartbeat ack 1");
        replica.Tick(553_000).Shows("control: promised 3 to 3, acknowledged 1.2, lease 553000");
        replica.Synced().Shows("to 3: epoch 3 prepared 1.2");
        // Later frames of the older leader are refused with the higher epoch.
        replica.From(2, 2, frame => frame.Heartbeat = heartbeat).Shows("to 2: epoch 3 fenced");
    }

    [Fact]
    public void Divergence_LowersTheAcknowledgedEtagBeforeItCutsToTheCommonRecord()
    {
        var control = new HardState { ReplicaId = new(1), PromisedEpoch = 1, PromisedLeader = new(3), PromisedIncarnation = 30, Acknowledged = new Etag(1, 4) };
        var replica = new Transcript(journal => { journal.Append(1, 2); journal.Append(1, 4); }, control, epoch: 2, leader: 2);
        replica.From(2, 2, frame => frame.Probe = new Probe { Record = Transcript.Id(1, 2) }).Shows("control: promised 2 to 2, acknowledged 1.4, lease 0");
        replica.Synced().Shows("to 2: epoch 2 has 1.2\nto 2: epoch 2 ack 1.2");
        replica.From(2, 2, frame => frame.Append = Transcript.Append((1, 2), (2, 3))).Shows("control: promised 2 to 2, acknowledged 1.2, lease 0");
        replica.Synced().Shows("cut to 1.2");
        replica.Step(Event.Truncated.Instance).Shows("to 2: epoch 2 has 1.2\nappend up to 2.3");
    }

    [Fact]
    public void Cut_CompletedUnderALaterLeader_IsNoMatchWithIt()
    {
        var control = new HardState { ReplicaId = new(1), PromisedEpoch = 1, PromisedLeader = new(3), PromisedIncarnation = 30, Acknowledged = new Etag(1, 2) };
        var replica = new Transcript(journal => { journal.Append(1, 2); journal.Append(1, 4); }, control, epoch: 2, leader: 2);
        replica.From(2, 2, frame => frame.Append = Transcript.Append((1, 2), (2, 3))).Synced();
        replica.Shows("control: promised 2 to 2, acknowledged 1.2, lease 0\ncut to 1.2");
        // Replica 3 leads epoch 3, and may not have 1.2.
        replica.From(3, 3, frame => frame.Heartbeat = new Heartbeat { Round = 1, Committed = new V1.Etag { Epoch = 3, Change = 9 } });
        replica.Shows("control: promised 3 to 3, acknowledged 1.2, lease 0");
        replica.Synced().Step(Event.Truncated.Instance).Shows("");
        replica.From(3, 3, frame => frame.Heartbeat = new Heartbeat { Round = 2, Committed = new V1.Etag { Epoch = 3, Change = 9 } });
        replica.Shows("to 3: epoch 3 heartbeat ack 2");
    }

    [Fact]
    public void LostTail_NeitherVotesNorAcknowledgesUntilRecoveredToTheLeadersCommittedEtag()
    {
        var control = new HardState { ReplicaId = new(1), PromisedEpoch = 2, PromisedLeader = new(2), PromisedIncarnation = 20, Acknowledged = new Etag(2, 5) };
        var replica = new Transcript(journal => journal.Append(2, 3), control, epoch: 2, leader: 2);
        replica.From(2, 2, frame => frame.Append = Transcript.Append((2, 3), (2, 4)));
        replica.Shows("append up to 2.4\nto 2: epoch 2 ack 2.3 recovering\ncontrol: promised 2 to 2, acknowledged 2.5, lease 0");
        replica.Synced().Durable().Shows("to 2: epoch 2 ack 2.4 recovering");
        replica.From(3, 2, frame => frame.PreVote = new PreVote { Number = 1 }).Shows("to 3: epoch 2 pre-vote refused");
        replica.From(2, 2, frame => frame.Append = Transcript.Append((2, 4), (2, 5))).Durable();
        replica.Shows("append up to 2.5\nto 2: epoch 2 ack 2.5 recovering");
        replica.From(2, 2, frame => frame.Heartbeat = new Heartbeat { Round = 1, Committed = new V1.Etag { Epoch = 2, Change = 5 } });
        replica.Shows("to 2: epoch 2 heartbeat ack 1\ncommit 2.5\nto 2: epoch 2 ack 2.5\ncontrol: promised 2 to 2, acknowledged 2.5, lease 0");
    }

    /// <summary>
    /// After a lost tail the acknowledged mark is the greatest etag of the promised epoch. The end of the recovery lowers it, and in the same step the replica
    /// may answer a repeated Prepare of that epoch. It compared its journal with the mark on disk and failed.
    /// </summary>
    [Fact]
    public void LostTail_RecoveredInThePromisedEpochWithAPrepareOpen_Continues()
    {
        var control = new HardState
        {
            ReplicaId = new(1), PromisedEpoch = 2, PromisedLeader = new(2), PromisedIncarnation = 20, Acknowledged = new Etag(2, ulong.MaxValue)
        };
        var replica = new Transcript(journal => journal.Append(2, 3), control, epoch: 2, leader: 2);
        replica.From(2, 2, frame => frame.Prepare = new Prepare()).Shows("");
        replica.From(2, 2, frame => frame.Append = Transcript.Append((2, 3), (2, 4))).Synced().Durable();
        replica.Shows("append up to 2.4\nto 2: epoch 2 ack 2.3 recovering\ncontrol: promised 2 to 2, acknowledged 2.18446744073709551615, lease 0\nto 2: "
            + "epoch 2 ack 2.4 recovering");
        replica.From(2, 2, frame => frame.Heartbeat = new Heartbeat { Round = 1, Committed = new V1.Etag { Epoch = 2, Change = 4 } });
        replica.Shows("to 2: epoch 2 heartbeat ack 1\ncommit 2.4\nto 2: epoch 2 prepared 2.4\nto 2: epoch 2 ack 2.4\ncontrol: "
            + "promised 2 to 2, acknowledged 2.4, lease 0");
    }

    [Fact]
    public void LostTail_KnownOnlyToTheLeader_IsRecoveredFromItsFirstProbe()
    {
        // The control file may lag behind what was acknowledged by a second, so the replica does not know of its loss.
        var control = new HardState { ReplicaId = new(1), PromisedEpoch = 2, PromisedLeader = new(2), PromisedIncarnation = 20, Acknowledged = new Etag(2, 3) };
        var replica = new Transcript(journal => journal.Append(2, 3), control, epoch: 2, leader: 2);
        var remembering = new Probe { Record = Transcript.Id(2, 3), Remembered = new V1.Etag { Epoch = 2, Change = 5 } };
        replica.From(2, 2, frame => frame.Probe = remembering);
        replica.Shows("alarm\nto 2: epoch 2 has 2.3\nto 2: epoch 2 ack 2.3 recovering\ncontrol: promised 2 to 2, acknowledged 2.5, lease 0");
        // A candidate gets no answer, although the mark is not on disk yet.
        replica.From(3, 3, frame => frame.Prepare = new Prepare()).Synced().Shows("control: promised 3 to 3, acknowledged 2.5, lease 0");
        replica.Synced().Shows("");
    }

    [Fact]
    public void LostTail_KnownOnlyToTheLeader_IsReportedToEachProcessBeforeAnyRecord()
    {
        var replica = Leading();
        var lacks = new Match { Record = Transcript.Id(0, 0) };
        replica.From(2, 1, frame => (frame.SenderIncarnation, frame.Match) = (21, lacks)).Shows("to 2: epoch 1 probe 0.0, remembers 1.1");
        // That process died too, with or without a mark on its disk. The next one is told in the first probe.
        replica.From(2, 1, frame => (frame.SenderIncarnation, frame.HeartbeatAck) = (22, new HeartbeatAck { Round = 1 }));
        replica.Shows("to 2: epoch 1 probe 1.1, remembers 1.1");
        replica.From(2, 1, frame => (frame.SenderIncarnation, frame.Match) = (22, lacks)).Shows("to 2: epoch 1 probe 0.0, remembers 1.1");
    }

    [Fact]
    public void UnknownTransaction_IsSettledByTheSameCompareAndARead()
    {
        var replica = new Transcript();
        replica.Tick().Read().From(2, 0, frame => frame.PreVoteAnswer = new PreVoteAnswer { Number = 1, Granted = true });
        replica.Shows("read the record\nto 2: epoch 0 prevote\nto 3: epoch 0 prevote\nset epoch 1 leader 1 if revision 5");
        replica.Set(SetOutcome.Unknown).Shows("");
        replica.Tick(200_000).Shows("set epoch 1 leader 1 if revision 5");
        replica.Set(SetOutcome.Lost).Shows("read the record");
        replica.Record.Epoch = 1;
        replica.Record.Leader = 1;
        replica.Record.LeaderIncarnation = 10;
        replica.Read().Shows("to 2: epoch 1 prepare\nto 3: epoch 1 prepare\ncontrol: promised 1 to 1, acknowledged 0.0, lease 0");
    }

    [Fact]
    public void Transfer_StopsServingWhenTheTargetIsReadyAndReleasesTheGrantsWhenItHasEverything()
    {
        var replica = Leading();
        replica.From(2, 1, frame => frame.HeartbeatAck = new HeartbeatAck { Round = 1, Granted = true, Durable = new V1.Etag { Epoch = 1, Change = 1 } });
        replica.Step(new Event.TransferAsked(7, new(2))).Shows("to 2: epoch 1 transferask");
        Assert.NotEqual(0, replica.Core.LeaseEndUs);
        // A write is in progress when serving stops.
        replica.Step(new Event.RecordAppended(replica.Journal.Append(1, 2))).Shows("to 2: epoch 1 bodies after 1.1");
        replica.Step(new Event.BodiesSent(new(2), 1, new LogPosition(new Etag(1, 2), 1), 4)).Shows("");
        replica.From(2, 1, frame => frame.TransferReady = new TransferReady()).Shows("stop serving");
        Assert.Equal(0, replica.Core.LeaseEndUs);
        replica.Step(new Event.ReadArrived(1)).Shows("reads up to 1 refused");
        replica.Durable().Shows("");
        replica.From(2, 1, frame => frame.Ack = new Ack { Durable = new V1.Etag { Epoch = 1, Change = 2 } });
        replica.Shows("commit 1.2\nto 2: epoch 1 release round 1, stand\nto 3: epoch 1 release round 1");
        // No heartbeat prevents the others from electing.
        replica.Tick(100_000).Shows("to 3: epoch 1 probe 0.0\nto 2: epoch 1 release round 1, stand\nto 3: epoch 1 release round 1");
        replica.From(2, 2, frame => frame.Prepare = new Prepare());
        replica.Shows("transfer 7 done\nstop leading\ncontrol: promised 2 to 2, acknowledged 1.2, lease 0");
        replica.Synced().Shows("to 2: epoch 2 prepared 1.2");
    }

    /// <summary>
    /// Behind a leader that always has more than a frame outstanding, no learner ever became a voter, and no transfer got beyond asking. And a follower counted
    /// as close that had just been found far behind, because nothing was outstanding to it yet.
    /// </summary>
    [Fact]
    public void Follower_OfABusyLeader_FollowsCloselyByTheTimeThatItIsBehind()
    {
        var replica = Leading();
        for (var change = 2ul; change <= 200; change++)
            replica.Step(new Event.RecordAppended(replica.Journal.Append(1, change))).Tick(1_000);
        replica.From(3, 1, frame => frame.Match = new Match { Found = true, Record = Transcript.Id(0, 0) });
        Assert.False(FollowsClosely(replica));
        // A megabyte is appended each millisecond, and the follower has what was appended a fifth of a second ago. Then it is 20 ms behind.
        for (var change = 201ul; change <= 1_000; change++)
        {
            replica.Step(new Event.RecordAppended(replica.Journal.Append(1, change)));
            replica.Step(new Event.BodiesSent(new(3), 1, replica.Journal.Last.Name, 1 << 20));
            var behind = change < 700 ? 200ul : 20ul;
            replica.Tick(1_000).From(3, 1, frame => frame.Ack = new Ack { Durable = new V1.Etag { Epoch = 1, Change = change - behind } });
            if (change == 699)
                Assert.False(FollowsClosely(replica));
        }
        Assert.True(FollowsClosely(replica));
        // Its disk stalls.
        replica.Step(new Event.RecordAppended(replica.Journal.Append(1, 1_001))).Tick(150_000);
        Assert.False(FollowsClosely(replica));

        static bool FollowsClosely(Transcript replica) =>
            replica.Core.FollowsClosely(replica.Core.Followers.Single(follower => follower.Replica == new ReplicaId(3)));
    }

    [Fact]
    public void Transfer_TargetSilent_EndsTheLeadershipAfterOneTimeout()
    {
        var replica = Leading();
        replica.Step(new Event.TransferAsked(7, ReplicaId.None)).From(2, 1, frame => frame.TransferReady = new TransferReady());
        replica.Shows("to 2: epoch 1 transferask\nstop serving\nto 2: epoch 1 release round 1, stand\nto 3: epoch 1 release round 1");
        replica.Tick(1_200_000).Shows("transfer 7 not done\nstop leading\ncontrol: promised 1 to 1, acknowledged 1.1, lease 0");
        replica.From(2, 1, frame => frame.HeartbeatAck = new HeartbeatAck { Round = 1, Granted = true }).Shows("");
        Assert.Equal(0, replica.Core.LeaseEndUs);
    }

    [Fact]
    public void SlowDisk_OfALeader_TransfersToAVoterWithAHealthyDisk()
    {
        var replica = Leading();
        replica.From(2, 1, frame => frame.HeartbeatAck = new HeartbeatAck { Round = 1, DiskImpaired = true });
        replica.Step(new Event.DiskHealth(true)).Shows("");
        // No better voter is known yet.
        replica.Tick(100_000).Shows("to 2: epoch 1 heartbeat 2 committed 1.1\nto 3: epoch 1 heartbeat 2 committed 1.1\nto 3: epoch 1 probe 0.0");
        replica.From(3, 1, frame => frame.Match = new Match { Found = true, Record = Transcript.Id(0, 0) }).Shows("to 3: epoch 1 bodies after 0.0");
        replica.Step(new Event.BodiesSent(new(3), 1, new LogPosition(new Etag(1, 1), 1), 4));
        replica.From(3, 1, frame => frame.Ack = new Ack { Durable = new V1.Etag { Epoch = 1, Change = 1 } });
        replica.Tick(100_000).Shows("to 2: epoch 1 heartbeat 3 committed 1.1\nto 3: epoch 1 heartbeat 3 committed 1.1\nto 3: epoch 1 transferask");
    }

    // Sent over a connection that broke, it arrived after the acknowledgements on the next one. The follower was sent a snapshot, and no body until that ended.
    [Fact]
    public void Match_OvertakenByWhatTheFollowerAcknowledged_IsIgnored()
    {
        var replica = Leading();
        replica.From(3, 1, frame => frame.Match = new Match { Found = true, Record = Transcript.Id(0, 0) });
        replica.Step(new Event.BodiesSent(new(3), 1, new LogPosition(new Etag(1, 1), 1), 4));
        replica.From(3, 1, frame => frame.Ack = new Ack { Durable = new V1.Etag { Epoch = 1, Change = 1 } });
        replica.Shown();
        replica.From(3, 1, frame => frame.Match = new Match { Record = Transcript.Id(0, 0) }).Shows("");
        replica.Step(new Event.RecordAppended(replica.Journal.Append(1, 2)));
        Assert.Contains("to 3: epoch 1 bodies after 1.1", replica.Shown(), StringComparison.Ordinal);
    }

    [Fact]
    public void SlowDisk_WithAnEquallySlowFollower_TransfersToTheOther()
    {
        var replica = Leading();
        replica.From(3, 1, frame => frame.Match = new Match { Found = true, Record = Transcript.Id(0, 0) });
        replica.Step(new Event.BodiesSent(new(3), 1, new LogPosition(new Etag(1, 1), 1), 4));
        replica.From(3, 1, frame => frame.Ack = new Ack { Durable = new V1.Etag { Epoch = 1, Change = 1 } });
        replica.Shown();
        AppendWithDisks(replica, 2, 120, [40_000, 36_000, 2_000]);
        // A majority of the others is as slow, so a transfer would gain nothing.
        Assert.False(replica.Core.Pace.IsSlow);
        Assert.DoesNotContain("transferask", replica.Shown(), StringComparison.Ordinal);
        // Its disk becomes slower still. It asks the replica with the fast disk, not the one that is nearly as slow as itself.
        AppendWithDisks(replica, 120, 150, [200_000, 90_000, 2_000]);
        Assert.True(replica.Core.Pace.IsSlow);
        replica.Shown();
        replica.Step(new Event.DiskHealth(true));
        Assert.Contains("to 3: epoch 1 transferask", replica.Shown(), StringComparison.Ordinal);
    }

    // Leader 1 appends changes one by one. The disks of replicas 1, 2 and 3 take this many microseconds for each, the first the longest.
    private static void AppendWithDisks(Transcript replica, ulong first, ulong end, long[] disks)
    {
        for (var change = first; change < end; change++)
        {
            var record = replica.Journal.Append(1, change);
            replica.Step(new Event.RecordAppended(record));
            foreach (var to in (ulong[])[2, 3])
                replica.Step(new Event.BodiesSent(new(to), 1, record.Name, 4));
            var durable = new V1.Etag { Epoch = 1, Change = change };
            replica.Tick(disks[2]).From(3, 1, frame => frame.Ack = new Ack { Durable = durable });
            replica.Tick(disks[1] - disks[2]).From(2, 1, frame => frame.Ack = new Ack { Durable = durable });
            replica.Tick(disks[0] - disks[1]).Durable();
        }
    }

    [Fact]
    public void Target_ReadsTheRecordBeforeTheLeaderStopsAndCampaignsWithoutPreVote()
    {
        var replica = Following();
        var heartbeat = new Heartbeat { Round = 1, LeaseUs = 500_000 };
        replica.From(2, 2, frame => frame.Heartbeat = heartbeat).Synced().From(2, 2, frame => frame.Heartbeat = heartbeat);
        replica.Shows("to 2: epoch 2 heartbeat ack 1\ncontrol: promised 2 to 2, acknowledged 1.2, lease 553000\nto 2: epoch 2 heartbeat ack 1 granted");
        replica.From(2, 2, frame => frame.TransferAsk = new TransferAsk()).Shows("read the record");
        replica.Record.Epoch = 2;
        replica.Record.Leader = 2;
        replica.Read().Shows("to 2: epoch 2 transferready");
        // Its own grant ends with the release, so it does not have to wait.
        replica.From(2, 2, frame => frame.Release = new Release { Round = 1, Stand = true }).Shows("set epoch 3 leader 1 if revision 5");
        // A frame that the old leader sent earlier arrives late.
        replica.From(2, 2, frame => frame.Heartbeat = heartbeat).Shows("");
        replica.Set(SetOutcome.Won).Shows("to 2: epoch 3 prepare\nto 3: epoch 3 prepare\ncontrol: promised 3 to 1, acknowledged 1.2, lease 553000");
    }

    [Fact]
    public void Release_VoidsLateGrantsOfItsRounds()
    {
        var replica = Following();
        var late = new Heartbeat { Round = 3, LeaseUs = 500_000 };
        replica.From(2, 2, frame => frame.Heartbeat = late).Synced();
        replica.From(2, 2, frame => frame.Release = new Release { Round = 3 });
        replica.Shows("to 2: epoch 2 heartbeat ack 3\ncontrol: promised 2 to 2, acknowledged 1.2, lease 553000");
        replica.From(2, 2, frame => frame.Heartbeat = late).Shows("to 2: epoch 2 heartbeat ack 3");
        replica.From(3, 3, frame => frame.Prepare = new Prepare()).Shows("control: promised 3 to 3, acknowledged 1.2, lease 553000");
    }

    [Fact]
    public void ReadIndex_IsAnsweredUnderTheLeaseOrByARoundSentAfterItArrived()
    {
        var replica = Leading();
        replica.From(3, 1, frame => frame.ReadIndex = new ReadIndex { Number = 4 });
        replica.Shows("to 2: epoch 1 heartbeat 2 committed 1.1");
        replica.From(2, 1, frame => frame.HeartbeatAck = new HeartbeatAck { Round = 1, Granted = true }).Shows("");
        replica.From(2, 1, frame => frame.HeartbeatAck = new HeartbeatAck { Round = 2, Granted = true }).Shows("to 3: epoch 1 read index 4 is 1.1");
        replica.From(3, 1, frame => frame.ReadIndex = new ReadIndex { Number = 5 }).Shows("to 3: epoch 1 read index 5 is 1.1");
    }

    /// <summary>However many leaders the node has, two rounds are sent within the lease of half a second.</summary>
    [Fact]
    public void Leader_OfANodeThatHasMany_SendsHeartbeatsInEverySecondInterval()
    {
        const int Steps = 20;
        var replica = Leading();
        replica.Core.HeartbeatsEvery = 1_000;
        var (rounds, sentAt) = (1ul, new List<int>());
        for (var step = 1; step <= Steps; step++)
        {
            if (!replica.Tick(50_000).Shown().Contains("heartbeat", StringComparison.Ordinal))
                continue;
            rounds++;
            sentAt.Add(step);
            replica.From(2, 1, frame => frame.HeartbeatAck = new HeartbeatAck { Round = rounds, Granted = true }).Shown();
            Assert.InRange(replica.Core.LeaseEndUs, 1_000_000 + (step * 50_000) + 500_000, long.MaxValue);
        }
        // The first was due before the node had as many.
        Assert.Equal([2, 4, 8, 12, 16, 20], sentAt);
    }

    /// <summary>A follower waits longer for a leader that says that it sends heartbeats rarely, also if something else arrives from it between them.</summary>
    [Theory]
    [InlineData(100_000, false)]
    [InlineData(100_000, true)]
    // Nobody who sends anything else is quiescent for a minute.
    [InlineData(60_000_000, true)]
    public void Follower_OfALeaderThatSendsHeartbeatsRarely_WaitsForThreeMore(int restUs, bool appends)
    {
        Assert.Equal(CampaignsAfterMs(0, appends) + 300, CampaignsAfterMs(restUs, appends));

        static int CampaignsAfterMs(int restUs, bool appends)
        {
            var replica = Following();
            replica.From(2, 2, frame => frame.Heartbeat = new Heartbeat { Round = 1, RestUs = (ulong)restUs });
            if (appends)
                replica.From(2, 2, frame => frame.Append = Transcript.Append((1, 2), (2, 3)));
            replica.Shown();
            for (var passedMs = 5; passedMs < 5_000; passedMs += 5)
            {
                if (replica.Tick(5_000).Shown().Contains("read the record", StringComparison.Ordinal))
                    return passedMs;
            }
            throw new InvalidOperationException("The follower never campaigned.");
        }
    }

    [Fact]
    public void FollowerReads_ShareTheNextQuestionAndAreRefusedWhenTheLeaderChanges()
    {
        var replica = Following();
        replica.Step(new Event.FollowerReadArrived(1)).Shows("to 2: epoch 2 read index 1?");
        replica.Step(new Event.FollowerReadArrived(2)).Step(new Event.FollowerReadArrived(3)).Shows("");
        replica.From(2, 2, frame => frame.ReadIndexAnswer = new ReadIndexAnswer { Number = 1, Committed = new V1.Etag { Epoch = 2, Change = 5 } });
        replica.Shows("commit 1.2\nfollower reads up to 1 once 2.5 is applied\nto 2: epoch 2 read index 2?");
        // A late copy of the first answer does not answer the second question.
        replica.From(2, 2, frame => frame.ReadIndexAnswer = new ReadIndexAnswer { Number = 1, Committed = new V1.Etag { Epoch = 2, Change = 5 } }).Shows("");
        replica.From(3, 3, frame => frame.Heartbeat = new Heartbeat { Round = 1 });
        replica.Shows("follower reads up to 3 refused\ncontrol: promised 3 to 3, acknowledged 1.2, lease 0");
    }

    /// <summary>
    /// etcd was restored from a backup with its revision raised, so its watch showed a record from before a change of the replicas. The leader took
    /// it for the newest, stepped down for its voters, and had outdated routes published.
    /// </summary>
    [Fact]
    public void Replica_ToldOfARecordWithAnOlderGeneration_AdoptsNothingAndRaisesAnAlarm()
    {
        var replica = Leading();
        var newer = replica.Record.Clone();
        (newer.Epoch, newer.Generation, newer.Leader, newer.LeaderIncarnation) = (1, 2, 1, 10);
        newer.Replicas.Single(other => other.Replica == 3).Replica = 4;
        newer.Removed.Add(3);
        replica.Step(new Event.ShardRecordRead(0, newer, 7));
        Assert.Same(newer, replica.Core.Effects.OfType<Effect.RecordAdopted>().Single().Record);
        // The record names voters of a change that this leader did not make, so it steps down. That is another rule; the test continues with it as a follower.
        replica.Shown();
        replica.Step(new Event.ShardRecordRead(0, replica.Record, 8)).Shows("read the record");
        Assert.Empty(replica.Core.Effects.OfType<Effect.RecordAdopted>());
        replica.Step(new Event.ShardRecordRead(replica.RequestId, replica.Record, 8)).Shows("alarm");
        Assert.Empty(replica.Core.Effects.OfType<Effect.RecordAdopted>());
    }

    [Fact]
    public void Leader_ToldOfAnOlderGenerationWithOtherVoters_DoesNotStepDown()
    {
        var replica = Leading();
        var older = replica.Record.Clone();
        older.Generation = 0;
        older.Replicas.RemoveAt(2);
        replica.Step(new Event.ShardRecordRead(0, older, 8)).Shows("read the record");
        replica.Step(new Event.ShardRecordRead(replica.RequestId, older, 8)).Shows("alarm");
        replica.Step(new Event.ReadArrived(1)).Shows("to 2: epoch 1 heartbeat 2 committed 1.1");
    }

    /// <summary>
    /// The leader's change of the replicas expects a record that was replaced by a higher epoch's since. A coordinator restored from a backup has that record
    /// again, and accepts. What the leader adopted last stays the newest; adopting its own older record would break the invariant of the view.
    /// </summary>
    [Fact]
    public void Leader_WhoseChangeWonAgainstAnOlderRecordOfARestoredCoordinator_KeepsTheNewerRecord()
    {
        var replica = Leading();
        var record = replica.Record.Clone();
        (record.Epoch, record.Leader, record.LeaderIncarnation) = (1, 1, 10);
        replica.Step(new Event.ReplicasAsked(1, new ReplicaChange.AddLearner(new(4), new(4)))).Shows("read the record");
        replica.Step(new Event.ShardRecordRead(replica.RequestId, record, 6)).Shows("set epoch 1 leader 1 if revision 6");
        var set = replica.RequestId;
        var higher = record.Clone();
        (higher.Epoch, higher.Leader, higher.LeaderIncarnation) = (2, 2, 20);
        replica.Step(new Event.ShardRecordRead(0, higher, 9));
        Assert.Same(higher, replica.Core.View.Record);
        replica.Step(new Event.CompareAndSetDone(set, SetOutcome.Won, 12));
        Assert.True(replica.Core.Effects.OfType<Effect.OrderEnded>().Single().Done);
        Assert.Same(higher, replica.Core.View.Record);
        Assert.Empty(replica.Core.Effects.OfType<Effect.RecordAdopted>());
    }

    /// <summary>The coordinator's data was lost and rebuilt from the nodes (F53). Its revisions begin anew, and the leader goes on in its epoch.</summary>
    [Fact]
    public void Leader_ToldOfARecordThatWasRebuilt_AdoptsItInSpiteOfItsRevisionAndRefusesTheOldStore()
    {
        var replica = Leading();
        var rebuilt = replica.Record.Clone();
        (rebuilt.Epoch, rebuilt.Leader, rebuilt.LeaderIncarnation, rebuilt.Generation, rebuilt.Recovery, rebuilt.EpochFloor) = (1, 1, 10, 1 << 20, 1, 2 << 20);
        replica.Step(new Event.ShardRecordRead(0, rebuilt, 2));
        Assert.Same(rebuilt, replica.Core.Effects.OfType<Effect.RecordAdopted>().Single().Record);
        Assert.Equal(new RecordVersion(1, 2), replica.Core.View.Version);
        Assert.Equal(ReplicaRole.Leader, replica.Core.Role);
        // The old store comes back with whatever revision and generation.
        var old = replica.Record.Clone();
        (old.Epoch, old.Generation) = (9, 3 << 20);
        replica.Step(new Event.ShardRecordRead(0, old, 1_000));
        Assert.Same(rebuilt, replica.Core.View.Record);
        replica.Shown();
        replica.Step(new Event.ReplicasAsked(1, new ReplicaChange.AddLearner(new(4), new(4)))).Shows("read the record");
        replica.Step(new Event.ShardRecordRead(replica.RequestId, old, 1_000)).Shows("alarm");
        Assert.Same(rebuilt, replica.Core.View.Record);
        Assert.Equal(ReplicaRole.Leader, replica.Core.Role);
    }

    /// <summary>The record was rebuilt without replica 3, which runs and acknowledges all the same (F53). Its disk may be any copy.</summary>
    [Fact]
    public void Leader_ToldOfARecordThatWasRebuiltWithoutAVoter_LeadsOnAndCommitsWithTheOthersOnly()
    {
        var replica = Leading();
        var rebuilt = replica.Record.Clone();
        (rebuilt.Epoch, rebuilt.Leader, rebuilt.LeaderIncarnation, rebuilt.Generation, rebuilt.Recovery) = (1, 1, 10, 1 << 20, 1);
        rebuilt.Replicas[2].Absent = true;
        replica.Step(new Event.ShardRecordRead(0, rebuilt, 2));
        Assert.Equal(ReplicaRole.Leader, replica.Core.Role);
        replica.From(3, 1, static frame => frame.Match = new Match { Found = true, Record = Transcript.Id(0, 0) });
        replica.Step(new Event.RecordAppended(replica.Journal.Append(1, 2)));
        replica.Step(new Event.BodiesSent(new(2), 1, new LogPosition(new Etag(1, 2), 1), 4));
        replica.Step(new Event.BodiesSent(new(3), 1, new LogPosition(new Etag(1, 2), 1), 4));
        replica.Durable().Shown();
        replica.From(3, 1, static frame => frame.Ack = new Ack { Durable = new V1.Etag { Epoch = 1, Change = 2 } });
        Assert.Equal(new Etag(1, 1), replica.Core.Committed);
        replica.From(2, 1, static frame => frame.Ack = new Ack { Durable = new V1.Etag { Epoch = 1, Change = 2 } });
        Assert.Equal(new Etag(1, 2), replica.Core.Committed);
    }

    [Fact]
    public void Replica_WithoutWhichTheRecordWasRebuilt_DoesNotCampaign()
    {
        var replica = new Transcript();
        replica.Record.Replicas[0].Absent = true;
        replica.Tick().Shows("");
    }

    /// <summary>
    /// The outcome of a change of voters was open when the records were rebuilt (F53). The rebuilt record decides, with or without the change.
    /// </summary>
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public void Leader_WhoseChangeIsOpenWhenTheRecordIsRebuilt_GoesByTheRebuiltRecord(bool hasChange)
    {
        var replica = Leading();
        var record = replica.Record.Clone();
        (record.Epoch, record.Leader, record.LeaderIncarnation) = (1, 1, 10);
        replica.Step(new Event.ReplicasAsked(1, new ReplicaChange.Remove(new(3)))).Shows("read the record");
        replica.Step(new Event.ShardRecordRead(replica.RequestId, record, 6)).Shows("set epoch 1 leader 1 if revision 6");
        var set = replica.RequestId;
        var rebuilt = record.Clone();
        (rebuilt.Generation, rebuilt.Recovery) = (1 << 20, 1);
        if (hasChange)
        {
            rebuilt.Replicas.RemoveAt(2);
            rebuilt.Removed.Add(3);
        }
        replica.Step(new Event.ShardRecordRead(0, rebuilt, 2));
        Assert.Equal(hasChange, replica.Core.Effects.OfType<Effect.OrderEnded>().Single().Done);
        Assert.Equal(ReplicaRole.Leader, replica.Core.Role);
        replica.Shown();
        // The answer of the lost coordinator is late, and says nothing any more.
        replica.Step(new Event.CompareAndSetDone(set, SetOutcome.Won, 7)).Shows("");
        Assert.Same(rebuilt, replica.Core.View.Record);
        // It leads by the voters of that record, and so a later copy of it with others would end its leadership.
        replica.Step(new Event.ShardRecordRead(0, rebuilt.Clone(), 3)).Shows("");
        Assert.Equal(ReplicaRole.Leader, replica.Core.Role);
    }

    /// <summary>A record that does not name a replica used to stop it for good, even a record from a backup made before the replica was added.</summary>
    [Fact]
    public void Replica_NeitherNamedNorListedAsRemoved_ContinuesWithAnAlarm()
    {
        var replica = Following();
        var foreign = replica.Record.Clone();
        (foreign.Generation, foreign.Epoch) = (9, 2);
        foreign.Replicas.RemoveAt(0);
        replica.Step(new Event.ShardRecordRead(0, foreign, 8)).Shows("read the record");
        replica.Step(new Event.ShardRecordRead(replica.RequestId, foreign, 8)).Shows("alarm");
        replica.From(2, 2, frame => frame.Append = Transcript.Append((1, 2), (2, 3))).Shows("append up to 2.3");
        var left = foreign.Clone();
        left.Removed.Add(1);
        replica.Step(new Event.ShardRecordRead(0, left, 9)).Shows("read the record");
        replica.Step(new Event.ShardRecordRead(replica.RequestId, left, 9));
        Assert.Equal(ReplicaRole.Stopped, replica.Core.Role);
        Assert.True(replica.Control!.Removed);
    }

    /// <summary>Epochs may have been assigned by a lost coordinator of which no node tells.</summary>
    [Fact]
    public void Candidate_OfARecordThatWasRebuilt_TakesAnEpochAboveItsFloor()
    {
        var replica = new Transcript();
        replica.Record.EpochFloor = 40;
        replica.Tick().Shows("read the record");
        replica.Read().Shows("to 2: epoch 0 prevote\nto 3: epoch 0 prevote");
        replica.From(2, 0, frame => frame.PreVoteAnswer = new PreVoteAnswer { Number = 1, Granted = true }).Shows("set epoch 41 leader 1 if revision 5");
    }

    [Fact]
    public void Lease_OfALaterLeadership_CoversNoEarlierSnapshot()
    {
        // A replica was deposed after a snapshot was taken and led again by the time its lease was read. The snapshot lacks the other leader's changes.
        var replica = Leading();
        replica.From(2, 1, frame => frame.HeartbeatAck = new HeartbeatAck { Round = 1, Granted = true, Durable = new V1.Etag { Epoch = 1, Change = 1 } });
        var lease = replica.Core.Lease;
        Assert.Equal(new ReadLease(1, 1_500_000), lease);
        Assert.True(lease.Covers(new Etag(1, 7), 1_499_999));
        Assert.False(lease.Covers(new Etag(1, 7), 1_500_000));
        Assert.False(new ReadLease(3, 1_500_000).Covers(new Etag(1, 7), 1_000_000));
        replica.From(2, 4, frame => frame.Fenced = new Fenced());
        Assert.Same(ReadLease.None, replica.Core.Lease);
    }

    // Replica 1 leads epoch 1 with its epoch-open record 1.1 committed.
    private static Transcript Leading()
    {
        var replica = new Transcript();
        replica.Tick().Shows("read the record");
        replica.Read().Shows("to 2: epoch 0 prevote\nto 3: epoch 0 prevote");
        replica.From(2, 0, frame => frame.PreVoteAnswer = new PreVoteAnswer { Number = 1, Granted = true }).Shows("set epoch 1 leader 1 if revision 5");
        replica.Set(SetOutcome.Won).Shows("to 2: epoch 1 prepare\nto 3: epoch 1 prepare\ncontrol: promised 1 to 1, acknowledged 0.0, lease 0");
        replica.Synced().Shows("");
        replica.From(2, 1, frame => frame.Prepared = new Prepared { Last = Transcript.Id(0, 0) }).Shows("start leading 1");
        replica.Step(new Event.RecordAppended(replica.Journal.Append(1, 1)));
        replica.Shows("to 2: epoch 1 heartbeat 1 committed 0.0\nto 3: epoch 1 heartbeat 1 committed 0.0\nto 2: epoch 1 probe 0.0\nto 3: epoch 1 probe 0.0");
        replica.From(2, 1, frame => frame.Match = new Match { Found = true, Record = Transcript.Id(0, 0) }).Shows("to 2: epoch 1 bodies after 0.0");
        replica.Step(new Event.BodiesSent(new(2), 1, new LogPosition(new Etag(1, 1), 1), 4)).Shows("");
        replica.Durable().Shows("");
        replica.From(2, 1, frame => frame.Ack = new Ack { Durable = new V1.Etag { Epoch = 1, Change = 1 } }).Shows("commit 1.1\nserve");
        replica.From(2, 1, frame => frame.HeartbeatAck = new HeartbeatAck { Round = 1 }).Shows("");
        return replica;
    }

    // Replica 1 follows replica 2 in epoch 2; both have 1.2.
    private static Transcript Following()
    {
        var replica = new Transcript(
            journal => journal.Append(1, 2), new HardState { ReplicaId = new(1), PromisedEpoch = 1, PromisedLeader = new(3), PromisedIncarnation = 30 },
            epoch: 1, leader: 3);
        replica.From(2, 2, frame => frame.Probe = new Probe { Record = Transcript.Id(1, 2) }).Shows("control: promised 2 to 2, acknowledged 0.0, lease 0");
        replica.Synced().Shows("to 2: epoch 2 has 1.2\nto 2: epoch 2 ack 1.2");
        return replica;
    }
}
