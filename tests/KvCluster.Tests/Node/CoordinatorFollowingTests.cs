using System.Diagnostics.Metrics;
using KvCluster.Disk;
using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;
using KvCluster.Node.Coordination.Embedded;
using KvCluster.Node.Hosting;
using KvCluster.Node.Runtime;
using KvCluster.Node.Telemetry;
using KvCluster.Replication.Protocol;
using KvCluster.Storage.Files;
using KvCluster.Tests.ServiceDefaults.Security;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Node;

/// <summary>Which state of the coordinator a node follows (F53).</summary>
public sealed class CoordinatorFollowingTests
{
    private static readonly Lineage History = Lineage.Create();
    private static readonly NodeIdentity Identity = new("local", "c1", new(1), 1, "") { Lineage = History };

    private static readonly ClusterRecord Known =
        new() { ClusterId = "c1", Lineage = History.ToByteString(), Recovery = 2, FormatLevel = 2, ContractLevel = 1 };

    [Theory]
    [InlineData("c1", 2, 2, false, null)]
    [InlineData("c1", 3, 2, false, null)]
    [InlineData("c1", 3, 2, true, null)]
    [InlineData("c1", 2, 2, true, "restored or replaced")]
    [InlineData("c1", 1, 2, false, "records are older")]
    [InlineData("c1", 1, 2, true, "records are older")]
    [InlineData("c2", 3, 2, true, "another cluster")]
    [InlineData("c1", 2, 1, false, "they were raised to 2 and 1, so it was restored from an older copy")]
    [InlineData("c1", 3, 1, false, null)]
    [InlineData("c1", 2, 7, false, "the cluster has format level 7, but only the levels 1 to 6 are supported by this program")]
    [InlineData(null, 0, 0, true, "its data is lost")]
    [InlineData(null, 0, 0, false, "its data is lost")]
    public void WhyNot_FollowsTheSameClusterAtTheSameOrALaterRecovery_AndLevelsThatThisProgramHas(
        string? cluster, ulong recovery, uint format, bool isAnotherStore, string? why)
    {
        var text = cluster is null ? null : RecordText.Format(
            new ClusterRecord { ClusterId = cluster, Lineage = History.ToByteString(), Recovery = recovery, FormatLevel = format, ContractLevel = 1 });
        var reason = CoordinatorFollowing.WhyNot(text, Identity, Known, isAnotherStore);
        if (why is null)
            Assert.Null(reason);
        else
            Assert.Contains(why, reason, StringComparison.Ordinal);
    }

    /// <summary>
    /// A store in which a recovery was completed that nobody here has seen is lost, and another one gets the same number. Then the first comes back.
    /// </summary>
    [Theory]
    [InlineData(7, null)]
    [InlineData(8, "another recovery 2")]
    public void WhyNot_OfTheSameNumber_AsksForTheSameRecovery(ulong id, string? why)
    {
        var (known, other) = (Known.Clone(), Known.Clone());
        (known.RecoveryId, other.RecoveryId) = (7, id);
        var reason = CoordinatorFollowing.WhyNot(RecordText.Format(other), Identity, known, isAnotherStore: false);
        if (why is null)
            Assert.Null(reason);
        else
            Assert.Contains(why, reason, StringComparison.Ordinal);
    }

    [Fact]
    public void WhyNot_OfAnotherLineage_IsRefused() => Assert.Contains(
        "another cluster",
        CoordinatorFollowing.WhyNot(
            RecordText.Format(new ClusterRecord { ClusterId = "c1", Lineage = Lineage.Create().ToByteString(), Recovery = 9 }), Identity, Known,
            isAnotherStore: true),
        StringComparison.Ordinal);

    /// <summary>Every change compares the cluster's record, which the raised levels change, before a node has heard of them.</summary>
    [Fact]
    public async Task Change_RightAfterTheLevelsWereRaised_IsMadeWithoutAnAlarm_AndAfterTheyWereLoweredItIsNot()
    {
        using var folder = new TemporaryDirectory();
        await using var coordinator = EmbeddedCoordinator.Open(Path.Combine(folder.Path, "coordinator"), TimeProvider.System);
        var keys = new CoordinatorKeys("local");
        await ClusterInit.CreateAsync(coordinator, "local", new NewCluster([new(1)], 1, []), CancellationToken.None);
        var text = await SetFormatAsync(coordinator, keys, format: 1);
        var known = KnownRecords.Open(LocalDisk.Instance, folder.Path);
        known.Keep(RecordText.Parse<ClusterRecord>(text));
        var identity = Identity with { ClusterId = known.Cluster!.ClusterId, Lineage = Lineage.Read(known.Cluster.Lineage) };
        await using var following = new CoordinatorFollowing(coordinator, keys, identity, known, text, NullLogger.Instance);
        var alarms = 0;
        await using var guarded = new GuardedCoordinator(coordinator, () => following.Guard) { Renew = following.RenewAsync, Alarmed = () => alarms++ };

        var raised = await SetFormatAsync(coordinator, keys, format: 2);
        Assert.Equal(SetOutcome.Won, (await guarded.CompareAndSetAsync("/test", 0, "1", 0, CancellationToken.None)).Outcome);
        Assert.Equal((raised, 0), (following.Guard.Value, alarms));
        Assert.Equal(2U, KnownRecords.Open(LocalDisk.Instance, folder.Path).Cluster!.FormatLevel);

        await SetFormatAsync(coordinator, keys, format: 1);
        await Assert.ThrowsAsync<CoordinatorGuardException>(() => guarded.CompareAndSetAsync("/test", 0, "2", 0, CancellationToken.None));
        Assert.Equal((raised, 1), (following.Guard.Value, alarms));
    }

    /// <summary>
    /// All records are deleted and rebuilt, in the same store. Until then the node changes nothing; then it goes by the new number, which is on its disk.
    /// </summary>
    [Fact]
    public async Task Node_ThroughALossAndARecovery_GuardsChangesByTheRecordInForce()
    {
        using var folder = new TemporaryDirectory();
        await using var coordinator = EmbeddedCoordinator.Open(Path.Combine(folder.Path, "coordinator"), TimeProvider.System);
        var keys = new CoordinatorKeys("local");
        await ClusterInit.CreateAsync(coordinator, "local", new NewCluster([new(1)], 1, []), CancellationToken.None);
        var read = await coordinator.GetAsync(keys.Cluster, CancellationToken.None);
        var record = RecordText.Parse<ClusterRecord>(read.Value!);
        var known = KnownRecords.Open(LocalDisk.Instance, folder.Path);
        known.Keep(record);
        var identity = Identity with { ClusterId = record.ClusterId, Lineage = Lineage.Read(record.Lineage) };
        await using var following = new CoordinatorFollowing(coordinator, keys, identity, known, read.Value!, NullLogger.Instance);
        await using var guarded = new GuardedCoordinator(coordinator, () => following.Guard);
        Assert.Equal(SetOutcome.Won, (await guarded.CompareAndSetAsync("/test", 0, "1", 0, CancellationToken.None)).Outcome);

        await coordinator.CompareAndSetAsync(keys.Cluster, read.ModRevision, null, 0, CancellationToken.None);
        await Assert.ThrowsAsync<CoordinatorGuardException>(() => guarded.CompareAndSetAsync("/test", 0, "2", 0, CancellationToken.None));
        record.Recovery = 1;
        await coordinator.CompareAndSetAsync(keys.Cluster, 0, RecordText.Format(record), 0, CancellationToken.None);
        await Eventually.TrueAsync(() => known.Recovery.Number == 1 && following.Guard.Value == RecordText.Format(record), "the node joins the recovery");
        Assert.Equal(SetOutcome.Lost, (await guarded.CompareAndSetAsync("/test", 0, "2", 0, CancellationToken.None)).Outcome);
        Assert.Equal(1UL, KnownRecords.Open(LocalDisk.Instance, folder.Path).Recovery.Number);
    }

    /// <summary>A node that runs has the data too, and nothing in the store said so.</summary>
    [Fact]
    public async Task Node_WhileTheRecordsAreLost_KeepsOthersFromCreatingAClusterUntilTheRecovery()
    {
        using var folder = new TemporaryDirectory();
        await using var coordinator = EmbeddedCoordinator.Open(Path.Combine(folder.Path, "coordinator"), TimeProvider.System);
        var keys = new CoordinatorKeys("local");
        var created = new NewCluster([new(1)], 1, []);
        await ClusterInit.CreateAsync(coordinator, "local", created, CancellationToken.None);
        var read = await coordinator.GetAsync(keys.Cluster, CancellationToken.None);
        var record = RecordText.Parse<ClusterRecord>(read.Value!);
        var known = KnownRecords.Open(LocalDisk.Instance, folder.Path);
        known.Keep(record);
        var identity = Identity with { ClusterId = record.ClusterId, Lineage = Lineage.Read(record.Lineage) };
        await using var following = new CoordinatorFollowing(coordinator, keys, identity, known, read.Value!, NullLogger.Instance);

        await coordinator.CompareAndSetAsync(keys.Cluster, read.ModRevision, null, 0, CancellationToken.None);
        async Task<string?> SaidAsync() => (await coordinator.GetAsync(keys.WaitingOf(identity.Node), CancellationToken.None)).Value;
        await Eventually.TrueAsync(async () => await SaidAsync() == record.ClusterId, "the node says that it has the data");
        await Assert.ThrowsAsync<ClusterConflictException>(() => ClusterInit.CreateAsync(coordinator, "local", created, CancellationToken.None));

        record.Recovery = 1;
        await coordinator.CompareAndSetAsync(keys.Cluster, 0, RecordText.Format(record), 0, CancellationToken.None);
        await Eventually.TrueAsync(async () => await SaidAsync() is null, "it says so no longer");
        Assert.Equal(1UL, known.Recovery.Number);
    }

    /// <summary>A second loss was never counted, and the first change after a recovery, which still had the guard of before, counted as one.</summary>
    [Fact]
    public async Task Alarms_AreCountedOnceForEachLoss_AndNotForAChangeFromBeforeTheRecovery()
    {
        using var folder = new TemporaryDirectory();
        await using var coordinator = EmbeddedCoordinator.Open(Path.Combine(folder.Path, "coordinator"), TimeProvider.System);
        var keys = new CoordinatorKeys("local");
        await ClusterInit.CreateAsync(coordinator, "local", new NewCluster([new(1)], 1, []), CancellationToken.None);
        var text = (await coordinator.GetAsync(keys.Cluster, CancellationToken.None)).Value!;
        var record = RecordText.Parse<ClusterRecord>(text);
        var known = KnownRecords.Open(LocalDisk.Instance, folder.Path);
        known.Keep(record);
        var identity = Identity with { ClusterId = record.ClusterId, Lineage = Lineage.Read(record.Lineage) };
        await using var metrics = new NodeMetrics(identity, shardSeriesMax: 1);
        await using var measured = new MeasuredCoordinator(coordinator, metrics);
        await using var following = new CoordinatorFollowing(measured, keys, identity, known, text, NullLogger.Instance) { Followed = measured.Followed };
        await using var guarded = new GuardedCoordinator(measured, () => following.Guard) { Renew = following.RenewAsync, Alarmed = measured.Alarm };
        var before = following.Guard;
        Assert.Null(following.Refusal);

        for (var loss = 1UL; loss <= 2; loss++)
        {
            var held = await coordinator.GetAsync(keys.Cluster, CancellationToken.None);
            await coordinator.CompareAndSetAsync(keys.Cluster, held.ModRevision, null, 0, CancellationToken.None);
            for (var change = 0; change < 2; change++)
                await Assert.ThrowsAsync<CoordinatorGuardException>(() => guarded.CompareAndSetAsync("/test", 0, "1", 0, CancellationToken.None));
            Assert.Equal(((long)loss, CoordinatorFollowing.Lost), (AlarmsOf(metrics), following.Refusal));

            record.Recovery = loss;
            await coordinator.CompareAndSetAsync(keys.Cluster, 0, RecordText.Format(record), 0, CancellationToken.None);
            var number = loss;
            await Eventually.TrueAsync(() => known.Recovery.Number == number && following.Refusal is null, "the node joins the recovery");
            await Assert.ThrowsAsync<CoordinatorGuardException>(() => guarded.CompareAndSetAsync("/test", 0, "1", 0, before, CancellationToken.None));
            Assert.Equal((long)loss, AlarmsOf(metrics));
        }
    }

    /// <summary>It was logged as a coordinator that is not followed, which sends an operator to rebuild records that are not lost.</summary>
    [Fact]
    public async Task Node_WhoseDiskRefusesARaisedRecord_NamesTheDisk_AndKeepsTheRecordLater()
    {
        using var folder = new TemporaryDirectory();
        using var disk = new SimulatedDisk();
        await using var coordinator = EmbeddedCoordinator.Open(Path.Combine(folder.Path, "coordinator"), TimeProvider.System);
        var keys = new CoordinatorKeys("local");
        await ClusterInit.CreateAsync(coordinator, "local", new NewCluster([new(1)], 1, []), CancellationToken.None);
        var text = await SetFormatAsync(coordinator, keys, format: 1);
        disk.CreateDirectory("/data");
        var known = KnownRecords.Open(disk, "/data");
        known.Keep(RecordText.Parse<ClusterRecord>(text));
        var identity = Identity with { ClusterId = known.Cluster!.ClusterId, Lineage = Lineage.Read(known.Cluster.Lineage) };
        var log = new LinesLog();
        disk.Refuse = static (operation, path) => new StorageIoException(operation, path, "a test");
        await using var following = new CoordinatorFollowing(coordinator, keys, identity, known, text, log);

        var raised = await SetFormatAsync(coordinator, keys, format: 2);
        await Eventually.TrueAsync(() => log.Lines.Length > 0, "the disk has refused");
        Assert.StartsWith(
            "Error: The coordinator's record could not be kept on this node's disk, so the node goes by the one before and tries again: ",
            Assert.Single(log.Lines), StringComparison.Ordinal);
        Assert.Equal(text, following.Guard.Value);
        Assert.Null(following.Refusal);

        disk.Refuse = null;
        await Eventually.TrueAsync(() => following.Guard.Value == raised, "the record is kept");
    }

    private static long AlarmsOf(NodeMetrics metrics)
    {
        var alarms = -1L;
        using var listener = new MeterListener
        {
            InstrumentPublished = (instrument, listens) =>
            {
                if (ReferenceEquals(instrument.Meter, metrics.Meter) && instrument.Name == "kvcluster.node.alarms")
                    listens.EnableMeasurementEvents(instrument);
            },
        };
        listener.SetMeasurementEventCallback<long>((_, counted, _, _) => alarms = counted);
        listener.Start();
        listener.RecordObservableInstruments();
        return alarms;
    }

    private static async Task<string> SetFormatAsync(EmbeddedCoordinator coordinator, CoordinatorKeys keys, uint format)
    {
        var read = await coordinator.GetAsync(keys.Cluster, CancellationToken.None);
        var record = RecordText.Parse<ClusterRecord>(read.Value!);
        record.FormatLevel = format;
        var text = RecordText.Format(record);
        await coordinator.CompareAndSetAsync(keys.Cluster, read.ModRevision, text, 0, CancellationToken.None);
        return text;
    }
}
