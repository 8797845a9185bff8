using Google.Protobuf;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Admin.V1;
using KvCluster.Internal.V1;
using KvCluster.Node.Configuration;
using KvCluster.Node.Coordination;
using KvCluster.Node.Coordination.Embedded;
using KvCluster.Node.CoordinatorRecovery;
using KvCluster.Node.Hosting;
using KvCluster.Node.Shards.Context;
using KvCluster.Processes;
using KvCluster.Replication.Protocol;
using KvCluster.Storage.Files;
using KvCluster.V1;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Node;

/// <summary>
/// The records are gone from the coordinator, and are rebuilt from nodes that run or wait (F53). A lost store, and processes, are in the tests with processes.
/// </summary>
public sealed class CoordinatorRecoveryTests
{
    private const uint Nodes = 3;
    private const int Shards = 2;

    /// <summary>The claim, two shards, the starts of three nodes, and the cluster.</summary>
    private const int PutsOfAll = 7;

    private static readonly ByteString Key = ByteString.CopyFromUtf8("k");

    [Fact]
    public async Task Recover_WhileNodesRun_KeepsTheLeadersAndElectsAboveTheFloor()
    {
        await using var cluster = await StartAsync();
        var before = await cluster.RecordAsync();
        var placed = await cluster.Coordinator.ListAsync(cluster.Keys.Root, CancellationToken.None);
        await DeleteAsync(cluster);
        var plan = new RecoverResponse();
        await Eventually.TrueAsync(async () => (plan = await RecoverAsync(cluster, planOnly: true)).Refusals.Count == 0, "all nodes answer in time");
        Assert.False(plan.Applied);
        Assert.Equal([0U, 1U], plan.Shards.Select(static shard => shard.Shard));
        Assert.All(plan.Shards, static shard => Assert.Equal([1U, 2U, 3U], shard.Intact.Order()));
        Assert.Null((await cluster.Coordinator.GetAsync(cluster.Keys.Cluster, CancellationToken.None)).Value);

        await AppliedAsync(cluster);
        var after = await cluster.RecordAsync();
        Assert.Equal(
            (before.Epoch, before.Leader, before.LeaderIncarnation, before.Lineage), (after.Epoch, after.Leader, after.LeaderIncarnation, after.Lineage));
        await JoinedAsync(cluster, after.Recovery);
        await PutAsync(cluster);
        await Eventually.TrueAsync(async () =>
        {
            try
            {
                await cluster.AdminOf(await cluster.LeaderOfAsync(0)).TransferAsync(new TransferRequest { Shard = 0 });
            }
            catch (RpcException)
            {
                // The target has not joined the recovery yet, so it does not campaign. Ask again.
            }

            return (await cluster.RecordAsync()).Epoch > after.EpochFloor;
        }, "a leader is elected in an epoch above the floor");
        await PutAsync(cluster);
        await Eventually.TrueAsync(
            async () => KeysOf(placed).IsSubsetOf(KeysOf(await cluster.Coordinator.ListAsync(cluster.Keys.Root, CancellationToken.None))),
            "all records are there again, those of the nodes too");
    }

    /// <summary>Whatever the last record was that was put, nobody follows before that of the cluster, and the next recovery completes it.</summary>
    [Fact]
    public async Task Recover_ThatEndsAfterAnyRecord_IsFollowedByNobodyAndCompletedByTheNext()
    {
        await using var cluster = await StartAsync();
        await DeleteAsync(cluster);
        for (var puts = 0; ; puts++)
        {
            var left = puts;
            var changed = new Changed(cluster.Coordinator, async (_, put) =>
                Interlocked.Decrement(ref left) >= 0 ? await put() : throw new CoordinatorUnavailableException("The coordinator is gone again."));
            try
            {
                var response = await RecoveryOf(cluster, changed).RecoverAsync(new RecoverRequest(), CancellationToken.None);
                if (response.Nodes.Any(static node => !node.Answered))
                {
                    // A node was late, so only the claim was put. The same again.
                    puts--;
                    continue;
                }

                Assert.True(response.Applied);
                Assert.Equal(PutsOfAll, puts);
                break;
            }
            catch (CoordinatorUnavailableException)
            {
                Assert.Equal(0, puts);
            }
            catch (RecoveryEndedException ended)
            {
                Assert.True(puts < PutsOfAll, "all records were put");
                Assert.Equal(puts == PutsOfAll - 1, ended.MayBeComplete);
                Assert.Null((await cluster.Coordinator.GetAsync(cluster.Keys.Cluster, CancellationToken.None)).Value);
                for (var node = 1U; node <= Nodes; node++)
                {
                    var report = await ReportOfAsync(cluster, node);
                    Assert.Equal(0UL, report.Cluster.Recovery);
                    // Whoever made it knows that it has ended, unless the last put may have arrived.
                    Assert.Equal(ended.MayBeComplete, report.Bound is not null);
                }

                await PutAsync(cluster);
            }
        }

        // Each that had put something took a number.
        await JoinedAsync(cluster, (await cluster.RecordAsync()).Recovery);
        await PutAsync(cluster);
    }

    /// <summary>The creation of a second cluster with more shards had ended early. As long as one of their records was there, no node read the map.</summary>
    [Fact]
    [Trait("Turn", "6")]
    public async Task Recover_BesideAShardOfAnotherCreation_RemovesItsRecord()
    {
        await using var cluster = await StartAsync();
        await DeleteAsync(cluster);
        var stray = cluster.Keys.Shard(new(Shards));
        var record = new ShardRecord { Shard = Shards, Generation = 1, Lineage = Lineage.Create().ToByteString() };
        await cluster.Coordinator.CompareAndSetAsync(stray, 0, RecordText.Format(record), 0, CancellationToken.None);
        await AppliedAsync(cluster);
        Assert.Null((await cluster.Coordinator.GetAsync(stray, CancellationToken.None)).Value);
        await JoinedAsync(cluster, (await cluster.RecordAsync()).Recovery);
        await PutAsync(cluster);
    }

    /// <summary>
    /// Another recovery has put its records in their places by the time at which the cluster's is put. Nodes would have joined this one, and found shards of
    /// the other.
    /// </summary>
    [Fact]
    public async Task Recover_WhileAnotherBegins_EndsBeforeTheClustersRecord()
    {
        await using var cluster = await StartAsync();
        await DeleteAsync(cluster);
        var other = RecordText.Format(new RecoveryClaim { Recovery = 9, RecoveryId = 9, Node = 2 });
        var changed = new Changed(cluster.Coordinator, async (key, put) =>
        {
            if (key == cluster.Keys.Cluster)
            {
                var claim = await cluster.Coordinator.GetAsync(cluster.Keys.Recovery, CancellationToken.None);
                await cluster.Coordinator.CompareAndSetAsync(cluster.Keys.Recovery, claim.ModRevision, other, 0, CancellationToken.None);
            }

            return await put();
        });
        // One for which a node answers too late ends before it puts anything.
        RecoveryEndedException? ended = null;
        await Eventually.TrueAsync(
            async () => (ended = await Record.ExceptionAsync(
                () => RecoveryOf(cluster, changed).RecoverAsync(new RecoverRequest(), CancellationToken.None)) as RecoveryEndedException) is not null,
            "the recovery has ended early");
        Assert.Contains("somebody else has begun", ended!.Message, StringComparison.Ordinal);
        Assert.Null((await cluster.Coordinator.GetAsync(cluster.Keys.Cluster, CancellationToken.None)).Value);
        // The next one takes a number above both, and so does each that is tried again.
        await AppliedAsync(cluster);
        var number = (await cluster.RecordAsync()).Recovery;
        Assert.True(number >= 10, $"{number}");
        await JoinedAsync(cluster, number);
        await PutAsync(cluster);
    }

    /// <summary>Its caller was told only that somebody else was at it.</summary>
    [Fact]
    public async Task Recover_WhileAnotherHasJustBegun_SaysWhatToDo()
    {
        await using var cluster = await StartAsync();
        await DeleteAsync(cluster);
        var changed = new Changed(
            cluster.Coordinator, async (key, put) => key == cluster.Keys.Recovery ? new CompareAndSetResult(SetOutcome.Lost, 0) : await put());
        var refused = await Assert.ThrowsAsync<CoordinatorUnavailableException>(
            () => RecoveryOf(cluster, changed).RecoverAsync(new RecoverRequest(), CancellationToken.None));
        Assert.EndsWith("Wait until that has ended, and run this again.", refused.Message, StringComparison.Ordinal);
    }

    /// <summary>Only nodes whose answers had arrived were released. One that was late elected nobody and changed no replicas for ten minutes.</summary>
    [Fact]
    public async Task Recover_RefusedBecauseAnAnswerIsLost_ReleasesTheNodeThatIsBound()
    {
        const uint Late = 2;
        await using var cluster = await StartAsync();
        await DeleteAsync(cluster);
        using var losing = new LosesBoundReports();
        var recovery = RecoveryOf(cluster, cluster.Coordinator, channelTo: (node, address) => GrpcChannel.ForAddress(
            address, new GrpcChannelOptions { HttpHandler = node.Value == Late ? losing : null }));
        var response = await recovery.RecoverAsync(new RecoverRequest(), CancellationToken.None);
        Assert.False(response.Applied);
        Assert.False(response.Nodes.Single(static node => node.Node == Late).Answered);
        Assert.True(losing.Lost > 0);
        for (var node = 1U; node <= Nodes; node++)
            Assert.Null((await ReportOfAsync(cluster, node)).Bound);
        await AppliedAsync(cluster);
    }

    /// <summary>It came after the release by whoever had asked and given up, and held the node for ten minutes.</summary>
    [Fact]
    public async Task Bind_WhoseCallerHasGoneAway_IsNotMade()
    {
        using var folder = new TemporaryDirectory();
        await using var coordinator = EmbeddedCoordinator.Open(Path.Combine(folder.Path, "coordinator"), TimeProvider.System);
        var keys = new CoordinatorKeys("local");
        var claim = new RecoveryClaim { Recovery = 1, RecoveryId = 9, Node = 2 };
        await coordinator.CompareAndSetAsync(keys.Recovery, 0, RecordText.Format(claim), 0, CancellationToken.None);
        await using var directory = NodeDirectory.Open(Path.Combine(folder.Path, "node"), LocalDisk.Instance);
        var reporter = new NodeReporter(new(1), directory, hosted: null, coordinator, keys, static () => []);
        using var gone = new CancellationTokenSource();
        await gone.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => reporter.ReportAsync(claim, gone.Token));
        Assert.Null(directory.Known.Bound);
    }

    /// <summary>Its caller was told that nothing was changed, although the claim was there, and a node that was bound nevertheless stayed so.</summary>
    [Fact]
    public async Task Recover_WhoseOwnPromiseCannotBeWritten_HasEndedEarlyAndReleasesTheNode()
    {
        await using var cluster = await StartAsync();
        await DeleteAsync(cluster);
        var recovery = RecoveryOf(cluster, cluster.Coordinator, async claim =>
        {
            var report = await ReportOfAsync(cluster, 1, claim);
            return claim is null ? report : throw new StorageIoException("write", "known/bound", "a test");
        });
        var ended = await Assert.ThrowsAsync<RecoveryEndedException>(() => recovery.RecoverAsync(new RecoverRequest(), CancellationToken.None));
        Assert.False(ended.MayBeComplete);
        Assert.Contains("this node could not note on its disk that it reports", ended.Message, StringComparison.Ordinal);
        Assert.NotNull((await cluster.Coordinator.GetAsync(cluster.Keys.Recovery, CancellationToken.None)).Value);
        Assert.Null((await ReportOfAsync(cluster, 1)).Bound);
    }

    /// <summary>A leader reports, and its coordinator comes back. Whatever it then changed there, the rebuilt record would not have.</summary>
    [Fact]
    public async Task Bind_BeforeAChangeOfReplicas_RefusesItUntilTheRecoveryHasEnded()
    {
        await using var cluster = await StartAsync();
        var claim = new RecoveryClaim { Recovery = 1, RecoveryId = 9, Node = 1 };
        var leader = await cluster.LeaderOfAsync(0);
        using var channel = GrpcChannel.ForAddress(cluster.PeerAddressOf(leader));
        var node = new Internal.V1.Recovery.RecoveryClient(channel.Calls());
        var unbound = (await node.BindAsync(new BindRequest { Node = 1, Claim = claim })).Report;
        Assert.Contains("another store", unbound.Unbound, StringComparison.Ordinal);
        Assert.Null(unbound.Bound);
        await cluster.Coordinator.CompareAndSetAsync(cluster.Keys.Recovery, 0, RecordText.Format(claim), 0, CancellationToken.None);
        var bound = (await node.BindAsync(new BindRequest { Node = 1, Claim = claim })).Report;
        Assert.Equal(("", claim), (bound.Unbound, bound.Bound));

        var record = await cluster.RecordAsync();
        await PutAsync(cluster);
        using var folder = new TemporaryDirectory();
        var known = KnownRecords.Open(LocalDisk.Instance, folder.Path);
        var records = new ShardRecords(cluster.Coordinator, cluster.Keys, known, NullLogger.Instance);
        Assert.NotNull((await ReadAsync(records)).Record);
        Assert.Null(known.TryBind(claim));
        Assert.Null((await ReadAsync(records)).Record);
        var put = record.Clone();
        put.Generation++;
        var revision = (await cluster.Coordinator.GetAsync(cluster.Keys.Shard(new(0)), CancellationToken.None)).ModRevision;
        Assert.Equal(SetOutcome.Lost, (await SetAsync(records, put, revision)).Outcome);
        Assert.Equal(record.Generation, (await cluster.RecordAsync()).Generation);

        await node.ReleaseAsync(new BindRequest { Node = 1, Claim = claim });
        Assert.Null((await node.ReportAsync(new ReportRequest { Node = 1 })).Report.Bound);
    }

    /// <summary>Named gone by mistake, or started again later: its replicas count for nothing, and others are built in their places.</summary>
    [Fact]
    public async Task Node_WithoutWhichTheRecordsWereRebuilt_GivesItsReplicasUpAndGetsNewOnes()
    {
        await using var cluster = await StartAsync();
        var leaders = new[] { await cluster.LeaderOfAsync(0), await cluster.LeaderOfAsync(1) };
        var absent = Enumerable.Range(1, (int)Nodes).Select(static node => (uint)node).First(node => !leaders.Contains(node));
        var list = await cluster.Coordinator.ListAsync(cluster.Keys.Root, CancellationToken.None);
        foreach (var entry in list.Entries.Where(entry => CoordinatorKeys.TryParseId(entry.Key, cluster.Keys.Shards, out _)))
        {
            var record = RecordText.Parse<ShardRecord>(entry.Value!);
            (record.Recovery, record.RecoveryId, record.Generation) = (1, 7, record.Generation + RecoveryPlan.Gap);
            record.Replicas.Single(replica => replica.Node == absent).Absent = true;
            await cluster.Coordinator.CompareAndSetAsync(entry.Key, entry.ModRevision, RecordText.Format(record), 0, CancellationToken.None);
        }

        var cluster0 = list.Entries.Single(entry => entry.Key == cluster.Keys.Cluster);
        var whole = RecordText.Parse<ClusterRecord>(cluster0.Value!);
        (whole.Recovery, whole.RecoveryId) = (1, 7);
        whole.Absent.Add(absent);
        await cluster.Coordinator.CompareAndSetAsync(cluster0.Key, cluster0.ModRevision, RecordText.Format(whole), 0, CancellationToken.None);
        await Eventually.TrueAsync(async () =>
        {
            for (var shard = 0U; shard < Shards; shard++)
            {
                var record = RecordText.Parse<ShardRecord>((await cluster.Coordinator.GetAsync(cluster.Keys.Shard(new(shard)), CancellationToken.None)).Value!);
                if (record.Removed.Count == 0
                    || record.Replicas.Count != 3 || record.Replicas.Any(static replica => replica.Learner || replica.Absent || !replica.Created))
                    return false;
            }

            return true;
        }, "new replicas vote in the places of those that count for nothing");
        await PutAsync(cluster);
    }

    [Fact]
    [Trait("Turn", "7")]
    public async Task Recover_WhileNodesWait_StartsThem()
    {
        await using var cluster = await StartAsync();
        var port = FreePorts.Ten();
        for (var node = 1U; node <= Nodes; node++)
        {
            await cluster.StopNodeAsync(node);
            await cluster.StartNodeAsync(OptionsOf(node));
        }

        await KnowAllAsync(cluster, node => $"http://127.0.0.1:{port + node}");
        await PutAsync(cluster);
        for (var node = 1U; node <= Nodes; node++)
            await cluster.StopNodeAsync(node);
        await DeleteAsync(cluster);
        cluster.Replication = new ReplicationOptions();
        var starting = Task.WhenAll(Enumerable.Range(1, (int)Nodes).Select(node => cluster.StartNodeAsync(OptionsOf((uint)node))));
        using var channel = GrpcChannel.ForAddress($"http://127.0.0.1:{port + 2}");
        await Eventually.TrueAsync(async () =>
        {
            var refused = await Assert.ThrowsAsync<RpcException>(
                async () => await new Admin.V1.Admin.AdminClient(channel.Calls()).ExamineAsync(new ExamineRequest()));
            return WaitingNode.IsIn(refused.Status.Detail);
        }, "a node that waits says so");
        RecoverResponse? done = null;
        await Eventually.TrueAsync(async () =>
        {
            try
            {
                done = await new Admin.V1.Coordinator.CoordinatorClient(channel.Calls()).RecoverAsync(new RecoverRequest());
                return done.Applied;
            }
            catch (RpcException failure) when (failure.StatusCode == StatusCode.Unavailable)
            {
                // It does not listen yet.
                return false;
            }
        }, "all nodes answer, and the records are rebuilt");
        Assert.All(done!.Shards, static shard => Assert.Equal(0U, shard.Leader));
        await starting.WaitAsync(Eventually.Limit);
        await PutAsync(cluster);
        Assert.Equal(Key, (await cluster.AskLeaderAsync(static kv => kv.GetAsync(new GetRequest { Key = Key }))).Value);

        NodeOptions OptionsOf(uint node) => cluster.OptionsOf(node) with { ListenPeers = $"http://127.0.0.1:{port + node}" };
    }

    private static async Task<NodeCluster> StartAsync()
    {
        var cluster = await NodeCluster.StartAsync((int)Nodes, "m"u8.ToArray());
        await PutAsync(cluster);
        await cluster.SettledLeaderAsync();
        await KnowAllAsync(cluster, cluster.PeerAddressOf);
        return cluster;
    }

    // What a node has on disk follows what it hears, a moment later.
    private static Task KnowAllAsync(NodeCluster cluster, Func<uint, string> addressOf) => Eventually.TrueAsync(async () =>
    {
        for (var node = 1U; node <= Nodes; node++)
        {
            var report = await ReportOfAsync(cluster, node);
            if (report.Replicas.Count != Shards || !report.Nodes.Select(static known => (known.Node, known.PeerAddress)).SequenceEqual(
                Enumerable.Range(1, (int)Nodes).Select(other => ((uint)other, addressOf((uint)other)))))
                return false;
        }

        return true;
    }, "every node has its replicas and knows all nodes");

    private static Task JoinedAsync(NodeCluster cluster, ulong recovery) => Eventually.TrueAsync(async () =>
    {
        for (var node = 1U; node <= Nodes; node++)
        {
            if ((await ReportOfAsync(cluster, node)).Cluster.Recovery != recovery)
                return false;
        }

        return true;
    }, $"every node has joined recovery {recovery}");

    private static async Task<NodeReport> ReportOfAsync(NodeCluster cluster, uint node, RecoveryClaim? claim = null)
    {
        using var channel = GrpcChannel.ForAddress(cluster.PeerAddressOf(node));
        var client = new Internal.V1.Recovery.RecoveryClient(channel.Calls());
        return (claim is null ? await client.ReportAsync(new ReportRequest { Node = 1 })
            : await client.BindAsync(new BindRequest { Node = 1, Claim = claim })).Report;
    }

    private static async Task<RecoverResponse> RecoverAsync(NodeCluster cluster, bool planOnly = false) =>
        await new Admin.V1.Coordinator.CoordinatorClient(cluster.ChannelOf(1).Calls()).RecoverAsync(new RecoverRequest { PlanOnly = planOnly });

    // Nothing is applied if a node does not answer in time, as happens when the machine stalls.
    private static Task AppliedAsync(NodeCluster cluster) =>
        Eventually.TrueAsync(async () => (await RecoverAsync(cluster)).Applied, "all nodes answer in time, and the records are rebuilt");

    private static Task PutAsync(NodeCluster cluster) => cluster.PutAsync(new PutRequest { Key = Key, Value = Key });

    private static HashSet<string> KeysOf(CoordinatorList list) => [.. list.Entries.Select(static entry => entry.Key)];

    // As somebody with etcdctl does by mistake.
    private static async Task DeleteAsync(NodeCluster cluster)
    {
        var list = await cluster.Coordinator.ListAsync(cluster.Keys.Root, CancellationToken.None);
        while (list.Entries.Count > 0)
        {
            foreach (var entry in list.Entries)
                await cluster.Coordinator.CompareAndSetAsync(entry.Key, entry.ModRevision, null, 0, CancellationToken.None);
            list = await cluster.Coordinator.ListAsync(cluster.Keys.Root, CancellationToken.None);
        }
    }

    private static RecoveryExecution RecoveryOf(
        NodeCluster cluster, ICoordinator coordinator, Func<RecoveryClaim?, Task<NodeReport>>? ownReport = null,
        Func<NodeId, string, GrpcChannel>? channelTo = null) => new(
        new(1),
        coordinator,
        cluster.Keys,
        (claim, _) => ownReport?.Invoke(claim) ?? ReportOfAsync(cluster, 1, claim),
        claim =>
        {
            using var channel = GrpcChannel.ForAddress(cluster.PeerAddressOf(1));
            new Internal.V1.Recovery.RecoveryClient(channel.Calls()).Release(new BindRequest { Node = 1, Claim = claim });
        },
        channelTo ?? (static (_, address) => GrpcChannel.ForAddress(address)),
        TimeProvider.System,
        NullLogger.Instance);

    private static Task<ShardRecordRead> ReadAsync(IShardRecords records)
    {
        var done = new TaskCompletionSource<ShardRecordRead>(TaskCreationOptions.RunContinuationsAsynchronously);
        records.Read(new(0), done.SetResult);
        return done.Task;
    }

    private static Task<CompareAndSetResult> SetAsync(IShardRecords records, ShardRecord record, long expectedRevision)
    {
        var done = new TaskCompletionSource<CompareAndSetResult>(TaskCreationOptions.RunContinuationsAsynchronously);
        records.CompareAndSet(new(0), record, expectedRevision, done.SetResult);
        return done.Task;
    }

    /// <summary>A network that loses the answers of nodes that have bound themselves.</summary>
    private sealed class LosesBoundReports() : DelegatingHandler(new SocketsHttpHandler())
    {
        private int _lost;

        public int Lost => Volatile.Read(ref _lost);

        protected override async Task<HttpResponseMessage> SendAsync(HttpRequestMessage request, CancellationToken cancellationToken)
        {
            var response = await base.SendAsync(request, cancellationToken);
            if (!request.RequestUri!.AbsolutePath.EndsWith("/Bind", StringComparison.Ordinal))
                return response;
            // The node has done what it was asked for.
            await response.Content.ReadAsByteArrayAsync(cancellationToken);
            response.Dispose();
            Interlocked.Increment(ref _lost);
            throw new HttpRequestException("The answer was lost.");
        }
    }

    /// <summary>A coordinator whose changes a test can refuse, or act before.</summary>
    private sealed class Changed(ICoordinator inner, Func<string, Func<Task<CompareAndSetResult>>, Task<CompareAndSetResult>> change)
        : PassingCoordinator(inner)
    {
        public override Task<CompareAndSetResult> CompareAndSetAsync(
            string key, long expectedRevision, string? value, long lease, CoordinatorGuard? guardedBy, CancellationToken cancellationToken) =>
            change(key, () => Inner.CompareAndSetAsync(key, expectedRevision, value, lease, guardedBy, cancellationToken));

        public override ICoordinator Anew() => this;
    }
}
