using Google.Protobuf;
using KvCluster.Node.Shards.Context;
using KvCluster.Node.Shards.Disk;
using KvCluster.Node.Shards.Loop;
using KvCluster.Node.Shards.Reads;
using KvCluster.Node.Telemetry;
using KvCluster.Replication;
using KvCluster.Replication.Log;
using KvCluster.Replication.Progress;
using KvCluster.Replication.Protocol;
using KvCluster.Storage;
using KvCluster.Storage.Maintenance;
using KvCluster.V1;

namespace KvCluster.Node.Shards;

/// <summary>
/// Describes a replica for <c>kv status</c> and for metrics, also after it has ended. Called on any thread; it looks at the replica between two of its events.
/// </summary>
internal sealed class ReplicaReport(
    ShardReplicaContext context,
    ReplicaCore core,
    ReplicaJournalView journal,
    ReplicaReads reads,
    PublishedState published,
    ReplicaDisk disk,
    DecisionLog decisions,
    ReplicaMailbox mailbox,
    ReplicaLife life)
{
    /// <summary>Heartbeats of a quiescent leader that may remain unanswered before it counts as alone.</summary>
    private const ulong QuiescentRoundsUnansweredMax = 3;

    private ReplicaStore Store => journal.Store;

    private ShardId Shard => published.Route.ShardId;

    /// <summary>The replica's entry in <c>kv status</c>. With <paramref name="digest"/> it reads the whole tree, unless cancelled.</summary>
    public async Task<ReplicaStatus> StatusAsync(bool digest, bool detail, CancellationToken cancellationToken)
    {
        var status = new ReplicaStatus { Route = published.Route, ReplicaId = Store.Durable.Control.ReplicaId };
        if (detail)
            status.Detail = new ReplicaDetail { Incarnation = context.Incarnation, Decisions = { decisions.ToArray() } };
        if (!await mailbox.VisitAsync(() => Describe(status)).ConfigureAwait(false))
        {
            status.Role = ReplicaStatus.Types.Role.Failed;
            status.Failure = life.Failure?.Message ?? "stopped";
            return status;
        }
        if (digest)
            await AddDigestAsync(status, cancellationToken).ConfigureAwait(false);
        return status;
    }

    /// <summary>The replica's state for metrics.</summary>
    /// <param name="told">Called once, on the writer executor; see <see cref="ReplicaMailbox.LeaveTold"/>.</param>
    public void Measure(Action<MeasuredReplica> told)
    {
        MeasuredReplica? measured = null;
        mailbox.LeaveTold(() => measured = Measure(), _ => told(measured ?? new MeasuredReplica { Shard = Shard, Role = null }));
    }

    /// <summary>What it knows of the shard's replicas, for decisions; null if it has failed or stopped.</summary>
    public async Task<LeaderView?> LookAsync()
    {
        LeaderView? view = null;
        await mailbox.VisitAsync(() => view = Look()).ConfigureAwait(false);
        return view;
    }

    /// <summary>The newest generation, epoch and version of the shard's record that this replica has seen. The epoch includes the promised one.</summary>
    public async Task<(ulong Generation, ulong Epoch, RecordVersion Version)> SeenAsync()
    {
        var (generation, epoch, version) = (0UL, 0UL, default(RecordVersion));
        // For a replica that has stopped, the control file has these values.
        await mailbox.VisitAsync(() =>
        {
            var view = core.View;
            (generation, epoch, version) = (view.Record.Generation, Math.Max(core.Epoch, view.Record.Epoch), view.Version);
        }).ConfigureAwait(false);
        var held = Store.Durable.Control;
        return (
            Math.Max(generation, held.Generation), Math.Max(epoch, held.PromisedEpoch),
            RecordVersion.Max(version, new RecordVersion(held.Recovery, held.CoordinatorRevision)));
    }

    /// <summary>What binds it; null if it has failed or stopped.</summary>
    public async Task<ReplicaPromises?> PromisesAsync()
    {
        ReplicaPromises? promises = null;
        await mailbox.VisitAsync(() => promises = new ReplicaPromises(
            Store.Durable.Control, core.View.Record, core.Epoch, core.Role == ReplicaRole.Leader, context.Incarnation)).ConfigureAwait(false);
        return promises;
    }

    private void Describe(ReplicaStatus status)
    {
        status.Role = ToMessage(core.Role);
        status.LacksSpace = disk.Lack?.Reason ?? "";
        status.Epoch = core.Epoch;
        status.Last = Store.Log.Last.Etag.ToWire();
        status.Durable = Store.Durable.Last.Etag.ToWire();
        status.Committed = core.Committed.ToWire();
        status.Applied = Store.Pages.Roots.PublishedEtag.ToWire();
        status.Keys = Store.Statistics.Keys;
        status.DataBytes = (ulong)Store.Statistics.DataBytes;
        status.DataAllocatedBytes = (ulong)Store.Statistics.DataAllocatedBytes;
        status.JournalBytes = (ulong)Store.Statistics.JournalBytes;
        if (status.Detail is { } detail)
            Describe(detail, context.NowUs());
    }

    // Unless too much is written meanwhile.
    private async Task AddDigestAsync(ReplicaStatus status, CancellationToken cancellationToken)
    {
        using var snapshot = reads.OpenSnapshot(forDigest: true);
        if (await TreeDigest.OfAsync(snapshot, context.Clock, cancellationToken).ConfigureAwait(false) is not { } digest)
            return;
        status.Digest = ByteString.CopyFrom(digest);
        status.DigestEtag = snapshot.Etag.ToWire();
    }

    private LeaderView Look()
    {
        var nowUs = context.NowUs();
        var followers = core.Followers.Select(follower => new FollowerView(follower.Replica, core.View.NodeOf(follower.Replica), follower.State, follower.Acked)
        {
            FollowsClosely = core.FollowsClosely(follower),
            SilentUs = nowUs - follower.HeardUs,
            DiskImpaired = follower.DiskImpaired,
            SnapshotBytes = follower.SnapshotBytes,
            SnapshotStored = follower.SnapshotStored,
            SnapshotVerified = follower.SnapshotVerified,
        });
        return new LeaderView(
            Store.Durable.Control.ReplicaId, core.Epoch, core.Committed, core.IsQuiescent, core.View.Record,
            [.. followers]) { DigestsAgree = core.DigestsAgree };
    }

    private MeasuredReplica Measure()
    {
        var role = core.Role;
        // A quiescent leader has no lease between its heartbeats, and some of these may be lost.
        var isFollowed = role == ReplicaRole.Leader
            && (reads.HasLease || (core.IsQuiescent && reads.AgeUs <= QuiescentRoundsUnansweredMax * (ulong)context.Replication.QuiescentIntervalUs));
        return new MeasuredReplica
        {
            Shard = Shard,
            Role = role,
            Epoch = core.Epoch,
            IsFollowed = isFollowed,
            IsLeaderless = !isFollowed && (role == ReplicaRole.Leader || !core.HasLeader(context.NowUs())),
            Change = Store.Pages.Roots.PublishedEtag.Change,
            HasLease = reads.HasLease,
            Disk = disk.State,
            Keys = (long)Store.Statistics.Keys,
            SessionsWithLifetime = Store.Writes.Lifetimes?.Count ?? 0,
            DataBytes = Store.Statistics.DataBytes,
            DataAllocatedBytes = Store.Statistics.DataAllocatedBytes,
            JournalBytes = Store.Statistics.JournalBytes,
            JournalKeptBytes = Store.Statistics.JournalKeptBytes,
            ChangedBytes = Store.Statistics.ScratchBytes,
            Readers = Store.Statistics.Readers,
            SnapshotAge = Store.Statistics.OldestSnapshotAge(),
            PinnedBytes = Store.Statistics.PinnedBytes,
            Followers = [.. core.Followers.Select(follower => new MeasuredFollower(
                core.View.NodeOf(follower.Replica),
                Store.Statistics.JournalBytesBehind(follower.Acked),
                (long)(Store.Log.Last.Change - Math.Min(Store.Log.Last.Change, follower.Acked.Change))))],
        };
    }

    private void Describe(ReplicaDetail detail, long nowUs)
    {
        var record = core.View.Record;
        detail.Record = new RecordedShard
        {
            Generation = record.Generation,
            Epoch = record.Epoch,
            Leader = record.Leader,
            Replicas = { record.Replicas.Select(static replica =>
                new RecordedReplica { Replica = replica.Replica, Node = replica.Node, Learner = replica.Learner, Created = replica.Created }) },
        };
        detail.Rests = core.IsQuiescent;
        detail.LeaseLeftUs = Math.Max(0, core.LeaseEndUs - nowUs);
        detail.ScrubbedPages = (ulong)Store.Statistics.ScrubbedPages;
        detail.ScrubPasses = (ulong)Store.Statistics.ScrubPasses;
        detail.GrantLeftUs = Math.Max(0, core.GrantEndUs - nowUs);
        if (core.DigestsCompared is { } compared)
            detail.Compared = new ComparedDigests { Etag = compared.Etag.ToWire(), Replicas = (uint)compared.Replicas, AgoUs = nowUs - compared.AtUs };
        foreach (var follower in core.Followers)
        {
            detail.Followers.Add(new FollowerStatus
            {
                ReplicaId = follower.Replica,
                NodeId = core.View.NodeOf(follower.Replica),
                State = ToMessage(follower.State),
                Acknowledged = follower.Acked.ToWire(),
                Sent = follower.Sent.Etag.ToWire(),
                OutstandingBytes = (ulong)follower.OutstandingBytes,
                GrantLeftUs = Math.Max(0, follower.GrantEndUs - nowUs),
                SilentUs = nowUs - follower.HeardUs,
                SnapshotBytes = (ulong)follower.SnapshotBytes,
                SnapshotStored = (ulong)follower.SnapshotStored,
                SnapshotVerified = (ulong)follower.SnapshotVerified,
                DiskImpaired = follower.DiskImpaired,
            });
        }
    }

    private static ReplicaStatus.Types.Role ToMessage(ReplicaRole role) => role switch
    {
        ReplicaRole.Leader => ReplicaStatus.Types.Role.Leader,
        ReplicaRole.Follower => ReplicaStatus.Types.Role.Follower,
        ReplicaRole.Candidate => ReplicaStatus.Types.Role.Candidate,
        ReplicaRole.Learner => ReplicaStatus.Types.Role.Learner,
        ReplicaRole.Recovering => ReplicaStatus.Types.Role.Recovering,
        ReplicaRole.Stopped => ReplicaStatus.Types.Role.Stopped,
        _ => ReplicaStatus.Types.Role.Unspecified,
    };

    private static FollowerStatus.Types.State ToMessage(FollowerState state) => state switch
    {
        FollowerState.Probe => FollowerStatus.Types.State.Probe,
        FollowerState.Replicate => FollowerStatus.Types.State.Replicate,
        FollowerState.Snapshot => FollowerStatus.Types.State.Snapshot,
        _ => FollowerStatus.Types.State.Unspecified,
    };
}
