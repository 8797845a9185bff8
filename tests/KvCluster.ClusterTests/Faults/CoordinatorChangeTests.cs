using System.Runtime.CompilerServices;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Admin.V1;
using KvCluster.ClusterTests.History;
using KvCluster.Internal.V1;
using KvCluster.Processes;
using KvCluster.V1;
using Role = KvCluster.V1.ReplicaStatus.Types.Role;

namespace KvCluster.ClusterTests.Faults;

/// <summary>
/// A leader loses etcd in the middle of a change of its shard's replicas: etcd has the change, and the leader never learns of it. The record proceeds
/// without it, under five client processes whose histories must be linearizable.
/// </summary>
[Trait("Turn", "2")]
public sealed class CoordinatorChangeTests
{
    private const int Some = 100;
    private const int Nodes = 4;
    private const int RoundsMax = 5;

    /// <summary>
    /// A leader compared a call's generation with its own. All others knew the newer one, so every caller with the right map was refused by the only
    /// node that could serve it, until the leader reached etcd again. Here the new learner's node changes the record, and then the replacement ends.
    /// </summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    public Task AnswerToANewLearnerLost_LeaderServesCallersOfTheNewerGeneration() => LoseAnswerAsync(
        "\"learner\"",
        static (record, _, _) => record.Replicas.Any(static replica => replica is { Learner: true, Created: true }),
        "etcd has the learner, and its node has created its directory",
        static async (cluster, histories, _, from, to) =>
        {
            cluster.Network.Heal();
            await UntilReplacedAsync(cluster, from, to);
            await histories.MoreChangesAsync(Some);
            await cluster.TransferAsync();
            await histories.MoreChangesAsync(Some);
        });

    /// <summary>
    /// While the leader does not know which set of voters etcd has, both sets decide. The voter that leaves hears of the change first and stops. Then
    /// the leader dies, still cut off: everything that it acknowledged must be on a majority of the voters that etcd names.
    /// </summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    public Task AnswerToASwapOfVotersLost_LeaderKeepsServingAndItsDeathLosesNothing() => LoseAnswerAsync(
        "\"removed\"",
        IsReplaced,
        "etcd has the new voter in the place of the old one",
        static async (cluster, histories, leader, from, to) =>
        {
            await cluster.Node(leader).KillAsync();
            await cluster.UntilLedWithoutAsync(leader);
            await histories.MoreChangesAsync(Some);
            cluster.Network.Heal();
            cluster.Node(leader).Start();
            await histories.MoreChangesAsync(Some);
            Assert.True(IsReplaced(await cluster.RecordAsync(), from, to));
        });

    // The leader makes a change of which it gets no answer, and serves without knowing it. Then the rest of the test goes on. If a stall of the machine costs
    // the leader its leadership before, the next one knows the change, and the test begins anew with another cluster.
    private static async Task LoseAnswerAsync(
        string record,
        Func<ShardRecord, int, int, bool> isThere,
        string expectation,
        Func<FaultCluster, Histories, int, int, int, Task> goOn,
        [CallerMemberName] string test = "")
    {
        for (var round = 1; ; round++)
        {
            await using var cluster = await StartAsync();
            await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
            await histories.MoreChangesAsync(Some);
            var (since, epoch) = (cluster.LogLengths(), await cluster.EpochAsync());
            var (leader, from, to) = await RolesAsync(cluster);
            using var replacing = ReplaceUntilTheAnswerIsLost(cluster, leader, from, to, record);
            try
            {
                await Eventually.TrueAsync(async () => isThere(await cluster.RecordAsync(), from, to), expectation);
                cluster.Network.Cut(leader, Network.Etcd);
                await MustServeNewerGenerationAsync(cluster);
                await histories.MoreChangesAsync(3 * Some);
                await MustServeNewerGenerationAsync(cluster);
            }
            catch (Xunit.Sdk.XunitException) when (round < RoundsMax && cluster.StallSince(since) is not null)
            {
                if (await cluster.EpochAsync() == epoch)
                    throw;
                continue;
            }
            await goOn(cluster, histories, leader, from, to);
            await histories.CheckAsync(test);
            await cluster.UntilEqualAsync();
            return;
        }
    }

    private static async Task<FaultCluster> StartAsync()
    {
        var cluster = await FaultCluster.StartAsync(nodes: Nodes);
        // Only the test may change replicas.
        await cluster.PausePlacementAsync();
        return cluster;
    }

    private static async Task<(int Leader, int From, int To)> RolesAsync(FaultCluster cluster)
    {
        var members = (await cluster.RecordAsync()).Replicas.Select(static replica => (int)replica.Node).ToArray();
        var leader = await cluster.LeaderAsync();
        return (leader, members.First(node => node != leader), Enumerable.Range(1, Nodes).Except(members).Single());
    }

    // The first record of the change with this text reaches etcd, and its answer is dropped. Nobody waits for the call: it ends when it is disposed.
    private static AsyncUnaryCall<ReplaceResponse> ReplaceUntilTheAnswerIsLost(FaultCluster cluster, int leader, int from, int to, string record)
    {
        cluster.Network.CutAnswerTo(leader, Network.Etcd, record);
        return cluster.AdminOf(leader).ReplaceAsync(new ReplaceRequest { Shard = 0, FromNode = (uint)from, ToNode = (uint)to });
    }

    // As a client with etcd's map. Every refusal is an error, except one that says that another node leads, as after a stall of the machine.
    private static async Task MustServeNewerGenerationAsync(FaultCluster cluster)
    {
        await Eventually.TrueAsync(async () =>
        {
            var leader = await cluster.LeaderAsync();
            var generation = (await cluster.RecordAsync()).Generation;
            if ((await cluster.StatusOfAsync(leader))?.Replicas.SingleOrDefault() is not { Role: Role.Leader } led)
                return false;
            Assert.True(led.Route.Generation < generation, $"the leader, node {leader}, knows generation {led.Route.Generation}, and etcd has {generation}: "
                + "the change was not hidden from it");
            using var exchange = cluster.KvOf(leader).Exchange(deadline: DateTime.UtcNow + Eventually.Limit);
            await exchange.RequestStream.WriteAsync(new ExchangeRequest
            {
                Calls =
                {
                    new Call
                    {
                        Id = 1, Method = Method.Put, Generation = generation,
                        Request = new PutRequest { Key = ByteString.CopyFromUtf8("newer"), Value = ByteString.CopyFromUtf8("1") }.ToByteString()
                    },
                    new Call
                    {
                        Id = 2, Method = Method.Get, Generation = generation,
                        Request = new GetRequest { Key = ByteString.CopyFromUtf8("newer") }.ToByteString()
                    },
                },
            });
            await exchange.RequestStream.CompleteAsync();
            var replies = new List<Reply>();
            await foreach (var response in exchange.ResponseStream.ReadAllAsync())
                replies.AddRange(response.Replies);
            Assert.Equal(2, replies.Count);
            var refused = replies.Where(static reply => reply.Code != 0)
                .Select(static reply => Google.Rpc.Status.Parser.ParseFrom(reply.Status).Message).ToList();
            Assert.All(refused, static message => Assert.DoesNotContain("does not hold", message, StringComparison.Ordinal));
            return refused.Count == 0;
        }, "the leader serves callers of the newer generation");
    }

    // As an operator does after an unknown outcome: reads the record and asks again.
    private static Task UntilReplacedAsync(FaultCluster cluster, int from, int to) => Eventually.TrueAsync(async () =>
    {
        try
        {
            if (IsReplaced(await cluster.RecordAsync(), from, to))
                return true;
            await cluster.AdminOf(await cluster.LeaderAsync()).ReplaceAndWaitAsync(new ReplaceRequest { Shard = 0, FromNode = (uint)from, ToNode = (uint)to });
        }
        catch (RpcException refused) when (refused.StatusCode is StatusCode.FailedPrecondition or StatusCode.Unavailable or StatusCode.Unknown)
        {
            // The earlier change is not settled yet, or another node leads.
        }

        return false;
    }, $"node {to} votes in the place of node {from}");

    private static bool IsReplaced(ShardRecord record, int from, int to) =>
        record.Replicas.Any(replica => replica.Node == to && !replica.Learner) && record.Replicas.All(replica => replica.Node != from);
}
