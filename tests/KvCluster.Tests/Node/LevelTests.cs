using System.Buffers.Binary;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Admin.V1;
using KvCluster.Internal.V1;
using KvCluster.Node;
using KvCluster.Node.Configuration;
using KvCluster.Node.Coordination;
using KvCluster.Node.Coordination.Embedded;
using KvCluster.Node.Hosting;
using KvCluster.Node.Runtime;
using KvCluster.Replication.Protocol;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.ServiceDefaults.Programs;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Pages;
using KvCluster.V1;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Node;

/// <summary>Later versions of the program beside this one, and the levels in force, which are raised when all nodes have been upgraded.</summary>
public sealed class LevelTests
{
    private const uint Earliest = 1;

    private static readonly ProgramLevels Earlier = new((1, 1), (1, 1));
    private static readonly ProgramLevels Later = new((1, 6), (1, 2));

    private static readonly CoordinatorKeys Keys = new("local");

    [Fact]
    public async Task Start_OfALaterVersion_JoinsAtTheLevelInForceAndFollows()
    {
        await using var cluster = await NodeCluster.StartAsync(2);
        await cluster.StopNodeAsync(2);
        await cluster.StartNodeAsync(cluster.OptionsOf(2) with { Levels = Later });
        await Eventually.TrueAsync(async () =>
        {
            var followers = (await cluster.StatusOfAsync(await cluster.LeaderOfAsync(0), shard: 0)).Replicas.Single().Detail.Followers;
            return followers.Count == 1 && followers[0].State == FollowerStatus.Types.State.Replicate;
        }, "the follower replicates");
        await PutAsync(cluster);
        Assert.Equal(Later.ToMessage(), (await cluster.StatusOfAsync(2)).Levels);
        Assert.Equal(ProgramLevels.Current.ToMessage(), (await cluster.StatusOfAsync(1)).Levels);
    }

    [Fact]
    public async Task Start_OfAVersionWithoutTheLevelInForce_IsRefused()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.StopNodeAsync(1);
        foreach (var (levels, text) in (ReadOnlySpan<(ProgramLevels, string)>)[
            (new((7, 8), (1, 1)), "format level 6, but only the levels 7 to 8 are supported"),
            (new((1, 6), (2, 2)), "contract level 1, but only level 2 is supported")])
        {
            var options = cluster.OptionsOf(1) with { Levels = levels };
            var refused = Assert.Throws<AggregateException>(() => cluster.StartNodeAsync(options).Wait()).InnerException;
            Assert.Contains(text, Assert.IsType<DirectoryFormatException>(refused).Message, StringComparison.Ordinal);
        }
        await cluster.StartNodeAsync(1);
    }

    /// <summary>A cluster that was upgraded stayed at the levels of the release that had created it.</summary>
    [Fact]
    public async Task Raise_IsRefusedUntilAllNodesSupportMore_AndInForceFromThenOn()
    {
        await using var cluster = await NodeCluster.StartAtFormatLevelAsync(3, Earliest);
        await RegisteredAsync(cluster);
        await cluster.StopNodeAsync(3);
        await RefusedAsync(
            "it is not known of all nodes what they support: node 3 is not registered. Start it, or have its replicas moved to other nodes, first.");

        await cluster.StartNodeAsync(cluster.OptionsOf(3) with { Levels = Earlier });
        await RegisteredAsync(cluster);
        await RefusedAsync($"not all nodes support format level 6 and contract level 1: node 3 (version {ProgramVersion.Full}) supports the format levels 1 to "
            + "1 and the contract levels 1 to 1. Upgrade them first.");
        Assert.Equal(Earliest, (await LevelsAsync(cluster)).Format);

        await cluster.StopNodeAsync(3);
        await cluster.StartNodeAsync(3);
        await RegisteredAsync(cluster);
        var raised = await LevelsAsync(cluster, raise: true);
        Assert.Equal((6U, 1U, 1U, 1U), (raised.Format, raised.FormatBefore, raised.Contract, raised.ContractBefore));
        Assert.All(raised.Nodes, static node => Assert.Equal((Earliest, 1U), (node.FormatInUse, node.ContractInUse)));
        var again = await LevelsAsync(cluster, raise: true);
        Assert.Equal((6U, 6U), (again.Format, again.FormatBefore));

        await cluster.StopNodeAsync(3);
        var older = await Assert.ThrowsAsync<DirectoryFormatException>(() => cluster.StartNodeAsync(cluster.OptionsOf(3) with { Levels = Earlier }));
        Assert.Contains("format level 6, but only level 1 is supported", older.Message, StringComparison.Ordinal);
        await cluster.StartNodeAsync(3);
        await Eventually.TrueAsync(
            async () => (await LevelsAsync(cluster)).Nodes.Select(static node => node.FormatInUse).SequenceEqual([1U, 1U, 6U]), "node 3 uses the raised level");

        Task RefusedAsync(string told) =>
            Refusal.ExpectAsync(() => LevelsAsync(cluster, raise: true), StatusCode.FailedPrecondition, "NOT_RAISED", $"Nothing was changed: {told}");
    }

    /// <summary>Between the raise and the last restart each node follows each other one, whichever level they use.</summary>
    [Fact]
    [Trait("Turn", "1")]
    public async Task Nodes_OfWhichSomeUseTheRaisedLevel_FollowEachOther()
    {
        await using var cluster = await NodeCluster.StartAtFormatLevelAsync(3, Earliest);
        await RegisteredAsync(cluster);
        await PutAsync(cluster);
        Assert.Equal(6U, (await LevelsAsync(cluster, raise: true)).Format);
        foreach (var restarted in (uint[])[1, 2, 3])
        {
            await cluster.FollowedAsync();
            await cluster.StopNodeAsync(restarted);
            await PutAsync(cluster);
            await cluster.StartNodeAsync(restarted);
            foreach (var leader in (uint[])[1, 2, 3])
            {
                await cluster.FollowedAsync();
                await LeadAsync(cluster, leader);
                await PutAsync(cluster);
            }
        }
        await RegisteredAsync(cluster);
        Assert.All((await LevelsAsync(cluster)).Nodes, static node => Assert.Equal(6U, node.FormatInUse));
        await Eventually.TrueAsync(async () =>
        {
            var replicas = (await Task.WhenAll(((uint[])[1, 2, 3]).Select(node => cluster.StatusOfAsync(node, digest: true))))
                .Select(static status => status.Replicas.Single()).ToList();
            return replicas.All(
                replica => !replica.Digest.IsEmpty && (replica.Digest, replica.DigestEtag).Equals((replicas[0].Digest, replicas[0].DigestEtag)));
        }, "the trees are equal");
    }

    /// <summary>What a process appends has the version of the levels in force when it started, so that an older program knows its journals.</summary>
    [Fact]
    [Trait("Turn", "1")]
    public async Task Journal_HasTheVersionOfTheRaisedLevel_FromTheNextStartOn()
    {
        await using var cluster = await NodeCluster.StartAtFormatLevelAsync(1, Earliest);
        await RegisteredAsync(cluster);
        await PutAsync(cluster);
        Assert.Equal(6U, (await LevelsAsync(cluster, raise: true)).Format);
        await PutAsync(cluster);
        await cluster.StopNodeAsync(1);
        Assert.Equal([SegmentHeader.VersionBefore], SegmentVersions(cluster.DirectoryOf(1)).Distinct());

        await cluster.StartNodeAsync(1);
        await PutAsync(cluster);
        await cluster.StopNodeAsync(1);
        Assert.Contains(SegmentHeader.Version, SegmentVersions(cluster.DirectoryOf(1)));
    }

    /// <summary>The same for data files, which an older program opens as long as the level is not used.</summary>
    [Fact]
    [Trait("Turn", "1")]
    public async Task DataFile_HasTheVersionOfTheRaisedLevel_FromTheNextStartOn()
    {
        await using var cluster = await NodeCluster.StartAtFormatLevelAsync(1, format: 3);
        await cluster.StopNodeAsync(1);
        await cluster.StartNodeAsync(Compressing(cluster.OptionsOf(1)));
        await RegisteredAsync(cluster);
        await CheckpointedAsync();
        Assert.Equal(6U, (await LevelsAsync(cluster, raise: true)).Format);
        await CheckpointedAsync();
        Assert.Equal(MetaPage.FormatVersionMin, Newest()!.Version);

        await cluster.StopNodeAsync(1);
        await cluster.StartNodeAsync(1);
        await CheckpointedAsync();
        Assert.Equal(MetaPage.FormatVersionOfDividedValues, Newest()!.Version);

        await cluster.StopNodeAsync(1);
        await cluster.StartNodeAsync(Compressing(cluster.OptionsOf(1)));
        await CheckpointedAsync();
        Assert.Equal(MetaPage.FormatVersion, Newest()!.Version);

        // So much that a quiescent store writes a checkpoint.
        async Task CheckpointedAsync()
        {
            // A file without a checkpoint has revision 2.
            var before = Newest()?.Revision ?? 2;
            var value = new byte[1 << 20];
            new Random(1).NextBytes(value);
            for (var put = 0; put < 5; put++)
                await cluster.PutAsync(new PutRequest { Key = ByteString.CopyFromUtf8($"large-{put}"), Value = ByteString.CopyFrom(value) });
            await Eventually.TrueAsync(() => Newest()?.Revision > before, "a checkpoint is written");
        }

        static NodeOptions Compressing(NodeOptions options) =>
            options with { Storage = options.Storage with { Pages = options.Storage.Pages with { CompressesValues = true } } };

        MetaPage? Newest() => MetaPagesOf(cluster.DirectoryOf(1)).MaxBy(static meta => meta.Revision);
    }

    /// <summary>A coordinator that was restored from a backup of before the raise would let an older program in.</summary>
    [Fact]
    public async Task Start_WhereTheCoordinatorHasLowerLevelsThanTheNodeKnows_Waits()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.StopNodeAsync(1);
        await cluster.SetFormatLevelAsync(Earliest);
        var health = new ProcessHealth();
        using var stop = new CancellationTokenSource();
        var starting = NodeHost.StartAsync(cluster.OptionsOf(1), cluster.Coordinator, health, NullLoggerFactory.Instance, stop.Token);
        await Eventually.TrueAsync(
            () => health.NotStarted?.Contains("they were raised to 6 and 1, so it was restored from an older copy", StringComparison.Ordinal) == true,
            "the node waits and says why");
        await stop.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => starting);
        await cluster.SetFormatLevelAsync(ProgramLevels.Current.Format.Max);
        await cluster.StartNodeAsync(1);
    }

    [Theory]
    [InlineData(1, 2, 2, 2, null)]
    [InlineData(1, 2, 3, 2, null)]
    [InlineData(2, 2, 2, 2, null)]
    [InlineData(1, 1, 1, 1, null)]
    [InlineData(2, 2, 3, 2, "not all nodes support format level 3 and contract level 1: node 1 ")]
    [InlineData(2, 1, 3, 2, "not all nodes support format level 3 and contract level 1: node 1 ")]
    [InlineData(2, 1, 2, 2, null)]
    public void Highest_OfTwoNodes_IsTheLesserOfTheirs_IfThatIsMoreThanIsInForce(uint inForce, uint first, uint second, uint expected, string? refused)
    {
        var (format, contract, refusal) = ClusterLevels.Highest(inForce, 1, [NodeOf(1, first), NodeOf(2, second)]);
        Assert.Equal((expected, 1U), (format, contract));
        if (refused is null)
            Assert.Null(refusal);
        else
            Assert.StartsWith(refused, refusal, StringComparison.Ordinal);
    }

    [Fact]
    public void Highest_WithANodeOfWhichNothingIsKnown_IsRefusedIfAnotherSupportsMore()
    {
        var (registered, away) = (new LevelsOfNode { Node = 2, Version = "0.0.1" }, new LevelsOfNode { Node = 3 });
        Assert.Null(ClusterLevels.Highest(2, 1, [NodeOf(1, 2), registered, away]).Refusal);
        Assert.Equal(
            "it is not known of all nodes what they support: node 2 (version 0.0.1) does not say so. Upgrade it first; node 3 is not registered. "
            + "Start it, or have its replicas moved to other nodes, first",
            ClusterLevels.Highest(1, 1, [NodeOf(1, 2), registered, away]).Refusal);
    }

    /// <summary>The record changes once. Whoever is second finds that nothing is left to do.</summary>
    [Fact]
    public async Task Raise_WhileAnotherNodeRaises_IsDoneOnce()
    {
        using var folder = new TemporaryDirectory();
        await using var coordinator = await CreateAsync(folder.Path);
        var other = new ClusterLevels(coordinator, Keys, NullLogger.Instance);
        LevelsResponse? first = null;
        await using var late = new GuardedCoordinator(coordinator, static () => new CoordinatorGuard(Keys.Cluster, "not this one", default))
        {
            // Between the read and the change.
            Renew = async (broken, stop) =>
            {
                first = (await other.AskAsync(new LevelsRequest { Raise = true }, stop)).Answer;
                return broken with { Value = (await coordinator.GetAsync(Keys.Cluster, stop)).Value! };
            },
        };
        var (second, refusal) = await new ClusterLevels(late, Keys, NullLogger.Instance).AskAsync(new LevelsRequest { Raise = true }, CancellationToken.None);
        Assert.Equal("", refusal);
        Assert.Equal((6U, Earliest), (first!.Format, first.FormatBefore));
        Assert.Equal((6U, 6U), (second!.Format, second.FormatBefore));
    }

    [Fact]
    public async Task Raise_DuringWhichTheCoordinatorFails_HasAnUnknownOutcome_AndMayBeRepeated()
    {
        using var folder = new TemporaryDirectory();
        await using var failing = new RefusingCoordinator(await CreateAsync(folder.Path), Keys.Cluster, refusals: 1);
        var levels = new ClusterLevels(failing, Keys, NullLogger.Instance);
        await Assert.ThrowsAsync<ChangeUnknownException>(() => levels.AskAsync(new LevelsRequest { Raise = true }, CancellationToken.None));
        Assert.Equal(6U, (await levels.AskAsync(new LevelsRequest { Raise = true }, CancellationToken.None)).Answer!.Format);
    }

    /// <summary>One line said that the change may have been made, and that nothing was changed.</summary>
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task Raise_WhoseGuardDoesNotHold_ChangesNothing_UnlessAnAttemptBeforeHadNoAnswer(bool hasNoAnswer)
    {
        using var folder = new TemporaryDirectory();
        await using var rebuilt = new Rebuilt(await CreateAsync(folder.Path), hasNoAnswer);
        var levels = new ClusterLevels(rebuilt, Keys, NullLogger.Instance);
        if (hasNoAnswer)
        {
            await Assert.ThrowsAsync<ChangeUnknownException>(() => levels.AskAsync(new LevelsRequest { Raise = true }, CancellationToken.None));
            return;
        }
        var (answer, refusal) = await levels.AskAsync(new LevelsRequest { Raise = true }, CancellationToken.None);
        Assert.Null(answer);
        Assert.Equal(CoordinatorGuard.WhyNotChanged, refusal);
    }

    // A cluster of format level 1 with one node, which is registered.
    private static async Task<EmbeddedCoordinator> CreateAsync(string folder)
    {
        var coordinator = EmbeddedCoordinator.Open(folder, TimeProvider.System);
        await ClusterInit.CreateAsync(coordinator, "local", new NewCluster([new(1)], 1, []), CancellationToken.None);
        var read = await coordinator.GetAsync(Keys.Cluster, CancellationToken.None);
        var record = RecordText.Parse<ClusterRecord>(read.Value!);
        record.FormatLevel = Earliest;
        await coordinator.CompareAndSetAsync(Keys.Cluster, read.ModRevision, RecordText.Format(record), 0, CancellationToken.None);
        var node = new NodeRecord { Node = 1, Version = "1", Levels = ProgramLevels.Current.ToMessage(), FormatLevel = Earliest, ContractLevel = 1 };
        await coordinator.CompareAndSetAsync(Keys.Node(new(1)), 0, RecordText.Format(node), 0, CancellationToken.None);
        return coordinator;
    }

    private static LevelsOfNode NodeOf(uint node, uint formatMax) =>
        new() { Node = node, Version = "1", Levels = new ProgramLevels((1, formatMax), (1, 1)).ToMessage() };

    private static async Task<LevelsResponse> LevelsAsync(NodeCluster cluster, bool raise = false) =>
        await cluster.AdminOf(1).LevelsAsync(new LevelsRequest { Raise = raise }, deadline: DateTime.UtcNow + Eventually.Limit);

    private static Task RegisteredAsync(NodeCluster cluster) =>
        Eventually.TrueAsync(async () => (await LevelsAsync(cluster)).Nodes.All(static node => node.Version.Length > 0), "all nodes are registered");

    private static async Task PutAsync(NodeCluster cluster) =>
        await cluster.PutAsync(new PutRequest { Key = ByteString.CopyFromUtf8("k"), Value = ByteString.CopyFromUtf8("v") });

    private static Task LeadAsync(NodeCluster cluster, uint node) => Eventually.TrueAsync(
        async () =>
        {
            var leader = await cluster.LeaderOfAsync(0);
            if (leader == node)
                return true;
            try
            {
                await cluster.AdminOf(leader).TransferAsync(new TransferRequest { Shard = 0, ToNode = node });
            }
            catch (RpcException refused) when (refused.StatusCode is StatusCode.FailedPrecondition or StatusCode.Unavailable)
            {
                // The target is behind, or the leader has just changed. Ask again.
            }
            return await cluster.LeaderOfAsync(0) == node;
        },
        $"node {node} leads");

    /// <summary>A coordinator whose records were rebuilt a moment ago.</summary>
    private sealed class Rebuilt(ICoordinator inner, bool hasNoAnswer) : PassingCoordinator(inner)
    {
        private bool _hasNoAnswer = hasNoAnswer;

        public override Task<CompareAndSetResult> CompareAndSetAsync(
            string key, long expectedRevision, string? value, long lease, CoordinatorGuard? guardedBy, CancellationToken cancellationToken)
        {
            if (!_hasNoAnswer)
                throw new CoordinatorGuardException("the record is another one. Nothing was changed.");
            _hasNoAnswer = false;
            return Task.FromResult(new CompareAndSetResult(SetOutcome.Unknown, 0));
        }

        public override ValueTask DisposeAsync() => Inner.DisposeAsync();
    }

    // A page that is being written is left out.
    private static IEnumerable<MetaPage> MetaPagesOf(string directory)
    {
        var page = new byte[8_192];
        foreach (var path in Directory.EnumerateFiles(directory, "data", SearchOption.AllDirectories))
        {
            using var file = new FileStream(path, FileMode.Open, FileAccess.Read, FileShare.ReadWrite);
            for (var number = 0; number < 2; number++)
            {
                file.ReadExactly(page);
                if (MetaPage.TryDecode(page, path) is { } meta)
                    yield return meta;
            }
        }
    }

    // Of all files that begin as a segment does.
    private static IEnumerable<uint> SegmentVersions(string directory)
    {
        var head = new byte[8];
        foreach (var path in Directory.EnumerateFiles(directory, "*", SearchOption.AllDirectories))
        {
            using var file = File.OpenRead(path);
            if (file.ReadAtLeast(head, head.Length, throwOnEndOfStream: false) == head.Length
                && BinaryPrimitives.ReadUInt32LittleEndian(head) == SegmentHeader.Magic)
                yield return BinaryPrimitives.ReadUInt32LittleEndian(head.AsSpan(4));
        }
    }
}
