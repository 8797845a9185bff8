using System.Collections.Concurrent;
using System.Runtime.CompilerServices;
using Grpc.Core;
using KvCluster.Admin.V1;
using KvCluster.Cli.Replacing;
using KvCluster.Client;
using KvCluster.Client.Transport;
using KvCluster.V1;
using Role = KvCluster.V1.ReplicaStatus.Types.Role;

namespace KvCluster.Tests.Cli;

/// <summary>Runs of <c>kv admin replace-node</c> against a cluster that refuses, loses answers or moves nothing.</summary>
public sealed class NodeReplacementTests
{
    private const uint Old = 3;
    private const uint New = 4;

    private readonly ConcurrentQueue<string> _told = new();

    [Fact]
    public async Task Run_WithANamedNode_MovesEachReplicaThere_AndMarksTheNodeFirst()
    {
        var cluster = new Moving([1, 2, 3], [2, 3, 1], [1, 2, 5]);
        var outcomes = await RunAsync(cluster, New, isLeaving: false);
        Assert.Equal([(0u, New, ""), (1u, New, "")], outcomes.Select(static one => (one.Shard, one.To!.Value, one.Refusal)));
        Assert.Equal(["leave 3", "replace 0", "replace 1"], cluster.Asked.OrderBy(static asked => asked, StringComparer.Ordinal));
        Assert.Equal("leave 3", cluster.Asked.First());
        Assert.Contains("shard 1: done on node 4", _told);
    }

    [Fact]
    public async Task Run_WithAShardThatRefuses_MovesTheOthersAndSaysWhy()
    {
        var cluster = new Moving([1, 2, 3], [2, 3, 1], [3, 1, 2]);
        cluster.Refusals[1] = static () => Refusal(StatusCode.FailedPrecondition, "NOT_REPLACED", "no");
        var outcomes = await RunAsync(cluster, New, isLeaving: false);
        Assert.Equal([New, null, New], outcomes.Select(static one => one.To));
        Assert.Equal(["", "refused: NOT_REPLACED", ""], outcomes.Select(static one => one.Refusal));
    }

    /// <summary>The same request finds the operation that it had begun.</summary>
    [Fact]
    public async Task Run_WhoseRequestWasNotAnswered_AsksAgain()
    {
        var cluster = new Moving([1, 2, 3]);
        cluster.Refusals[0] = () =>
            cluster.Asked.Count(static asked => asked == "replace 0") > 1 ? null : Refusal(StatusCode.Unknown, "OUTCOME_UNKNOWN", "unknown");
        Assert.Equal(New, Assert.Single(await RunAsync(cluster, New, isLeaving: true)).To);
        Assert.Equal(["replace 0", "replace 0"], cluster.Asked);
    }

    [Fact]
    public async Task Run_WithoutANamedNode_WaitsUntilTheClusterHasMovedThem()
    {
        var cluster = new Moving([1, 2, 3], [2, 3, 1]) { MovesByItself = true };
        Assert.Equal([New, New], (await RunAsync(cluster, to: null, isLeaving: true)).Select(static one => one.To));
        Assert.Empty(cluster.Asked);
        Assert.Contains(_told, static line => line.StartsWith("2 replicas remain on node 3", StringComparison.Ordinal));
    }

    [Fact]
    public async Task Run_WhileTheClusterMovesNothing_EndsAndSaysSo()
    {
        var outcome = Assert.Single(await RunAsync(new Moving([1, 2, 3]), to: null, isLeaving: true, TimeSpan.FromSeconds(0.1)));
        Assert.Equal((null, "it did not move within 0.1 s; the cluster goes on with it"), (outcome.To, outcome.Refusal));
    }

    private async Task<IReadOnlyList<MoveOutcome>> RunAsync(Moving cluster, uint? to, bool isLeaving, TimeSpan? limit = null)
    {
        var admin = new KvAdmin(cluster, Eventually.Limit);
        var plan = NodeReplacementPlan.Of(await admin.GetStatusAsync(), await admin.PlaceAsync(), Old, to);
        return await new NodeReplacement(admin, plan, limit ?? Eventually.Limit, _told.Enqueue).RunAsync(isLeaving, CancellationToken.None);
    }

    private static RpcException Refusal(StatusCode code, string reason, string applied) =>
        CallStatus.Create(code, reason, $"refused: {reason}", applied).ToRpcException();

    /// <summary>Five nodes, of which the third is gone, and the nodes of each shard's voters. An operation is done when it is watched.</summary>
    private sealed class Moving(params uint[][] shards) : OperatorInvoker
    {
        private readonly Lock _lock = new();

        /// <summary>The changes that were asked for, in order.</summary>
        public ConcurrentQueue<string> Asked { get; } = new();

        /// <summary>What a shard answers instead of replacing its replica, unless it is null.</summary>
        public Dictionary<uint, Func<RpcException?>> Refusals { get; } = [];

        /// <summary>It moves a replica whenever somebody looks at the operations.</summary>
        public bool MovesByItself { get; init; }

        protected override Task<TResponse> AskAsync<TRequest, TResponse>(
            Method<TRequest, TResponse> method, TRequest request, long deadlineMs, CancellationToken cancellationToken)
        {
            Task answer = request switch
            {
                GetStatusRequest => Task.FromResult(Status()),
                ReplaceRequest replace => ReplaceAsync(replace),
                ListOperationsRequest => Task.FromResult(List()),
                PlaceRequest place => Task.FromResult(Place(place)),
                _ => throw new NotSupportedException(),
            };
            return (Task<TResponse>)answer;
        }

        protected override async IAsyncEnumerable<TResponse> FollowAsync<TRequest, TResponse>(
            Method<TRequest, TResponse> method, TRequest request, long deadlineMs, [EnumeratorCancellation] CancellationToken cancellationToken)
        {
            await Task.Yield();
            Assert.True(OperationId.TryParse(Assert.IsType<WatchOperationRequest>(request).Id, out var id));
            Move(id.Shard.Value);
            yield return (TResponse)(object)new WatchOperationResponse { Operation = OperationOf(id.Shard.Value, OperationState.Done) };
        }

        private GetStatusResponse Status()
        {
            lock (_lock)
            {
                return new GetStatusResponse
                {
                    Nodes =
                    {
                        Enumerable.Range(1, 5).Select(node => new V1.NodeStatus
                        {
                            Node = (uint)node, Error = node == Old ? "gone" : "", Replicas = { node == Old ? [] : ReplicasOfLocked((uint)node) }
                        })
                    },
                };
            }
        }

        private Task<ReplaceResponse> ReplaceAsync(ReplaceRequest request)
        {
            Asked.Enqueue($"replace {request.Shard}");
            Assert.Equal((Old, New, false), (request.FromNode, request.ToNode, request.Force));
            return Refusals.GetValueOrDefault(request.Shard)?.Invoke() is { } refusal
                ? Task.FromException<ReplaceResponse>(refusal)
                : Task.FromResult(new ReplaceResponse { Operation = OperationOf(request.Shard, OperationState.Running) });
        }

        private ListOperationsResponse List()
        {
            if (MovesByItself && Array.FindIndex(shards, static voters => voters.Contains(Old)) is >= 0 and var shard)
                Move((uint)shard);
            return new ListOperationsResponse();
        }

        private PlaceResponse Place(PlaceRequest request)
        {
            foreach (var node in request.Leave)
                Asked.Enqueue($"leave {node}");
            return new PlaceResponse();
        }

        private static Admin.V1.ClusterOperation OperationOf(uint shard, OperationState state) =>
            new() { Id = new OperationId(new(shard), 1).ToString(), Shard = shard, FromNode = Old, ToNode = New, State = state };

        private void Move(uint shard)
        {
            lock (_lock)
                shards[shard] = [.. shards[shard].Select(static node => node == Old ? New : node)];
        }

        private IEnumerable<V1.ReplicaStatus> ReplicasOfLocked(uint node)
        {
            Invariant.CheckHeld(_lock);
            return [.. shards.Index().Where(shard => shard.Item.Contains(node)).Select(shard => new V1.ReplicaStatus
            {
                Route = new ShardRoute { Shard = (uint)shard.Index, Nodes = { shard.Item } },
                Role = shard.Item[0] == node ? Role.Leader : Role.Follower,
            })];
        }
    }
}
