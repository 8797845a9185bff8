using System.Collections.Concurrent;
using System.Threading.Channels;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Admin.V1;
using KvCluster.Client.Transport;
using KvCluster.V1;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Connections;
using Microsoft.AspNetCore.Hosting;
using Microsoft.AspNetCore.Server.Kestrel.Core;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging;
using Method = KvCluster.V1.Method;
using Status = Google.Rpc.Status;
using Role = KvCluster.V1.ReplicaStatus.Types.Role;

namespace KvCluster.Tests.Client;

/// <summary>
/// One node of a <see cref="FakeCluster"/>: a real server on a loopback port. It serves the shards that it leads and sends hints for the others.
/// </summary>
internal sealed class FakeNode : Kv.KvBase, IAsyncDisposable
{
    private readonly FakeCluster _cluster;
    private readonly ConcurrentDictionary<string, ConnectionContext> _connections = new();
    private readonly ConcurrentDictionary<Channel<V1.ShardMap>, bool> _watchers = new();
    private readonly ConcurrentDictionary<Call, bool> _misdirected = new(ReferenceEqualityComparer.Instance);
    private WebApplication? _app;
    private int _replies;
    private int _adminCalls;

    private FakeNode(FakeCluster cluster, uint id)
    {
        _cluster = cluster;
        Id = id;
    }

    public uint Id { get; }

    public string Address { get; private set; } = "";

    /// <summary>Asked first for each call except those that open sessions. Null means to serve the call. A reply with id 0 is never sent.</summary>
    public Func<Call, Task<Reply?>>? Script { get; set; }

    /// <summary>Runs in each changing call of an operator, before its answer.</summary>
    public Func<Task>? AdminScript { get; set; }

    /// <summary>The number of these calls received.</summary>
    public int AdminCallsSeen => Volatile.Read(ref _adminCalls);

    /// <summary>The map is not sent until this task has ended.</summary>
    public Task MapMayGo { get; set; } = Task.CompletedTask;

    /// <summary>Called before each page of a scan.</summary>
    public Action<ScanPage>? ScanScript { get; set; }

    /// <summary>Calls received over Exchange streams, except those that open sessions.</summary>
    public ConcurrentQueue<Call> Calls { get; } = new();

    /// <summary>
    /// Those calls without the ones that were refused because another node leads the shard. While the connection to a leader takes long, as where the machine
    /// stalls, clients ask the other nodes.
    /// </summary>
    public IEnumerable<Call> CallsAsLeader => Calls.Where(call => !_misdirected.ContainsKey(call));

    /// <summary>Ids of calls that their callers gave up.</summary>
    public ConcurrentQueue<ulong> Cancelled { get; } = new();

    /// <summary>The number of replies handed to the connection.</summary>
    public int Replies => Volatile.Read(ref _replies);

    /// <summary>Transfers asked for.</summary>
    public ConcurrentQueue<TransferRequest> Transfers { get; } = new();

    /// <summary>Scans received.</summary>
    public ConcurrentQueue<ScanRequest> Scans { get; } = new();

    /// <summary>The number of messages in which the calls arrived.</summary>
    public int Messages { get; private set; }

    public static readonly Reply Silence = new();

    public static async Task<FakeNode> StartAsync(FakeCluster cluster, uint id, int port)
    {
        var node = new FakeNode(cluster, id);
        var builder = WebApplication.CreateSlimBuilder();
        builder.Logging.ClearProviders();
        builder.WebHost.ConfigureKestrel(kestrel => kestrel.Listen(System.Net.IPAddress.Loopback, port, listen =>
        {
            listen.Protocols = HttpProtocols.Http2;
            listen.Use(next => async connection =>
            {
                node._connections[connection.ConnectionId] = connection;
                await next(connection);
                node._connections.TryRemove(connection.ConnectionId, out _);
            });
        }));
        builder.Services.AddGrpc(grpc => grpc.MaxReceiveMessageSize = 64 << 20);
        builder.Services.AddSingleton(node).AddSingleton(new ClusterCalls(node)).AddSingleton(new AdminCalls(node));
        node._app = builder.Build();
        node._app.MapGrpcService<FakeNode>();
        node._app.MapGrpcService<ClusterCalls>();
        node._app.MapGrpcService<AdminCalls>();
        await node._app.StartAsync();
        node.Address = node._app.Urls.Single();
        return node;
    }

    public async ValueTask DisposeAsync()
    {
        if (_app is not { } app)
            return;
        _app = null;
        await app.StopAsync(new CancellationToken(canceled: true));
        await app.DisposeAsync();
    }

    /// <summary>Breaks every connection, as the death of a node does.</summary>
    public void Abort()
    {
        foreach (var connection in _connections.Values)
            connection.Abort();
    }

    public void SendMap(V1.ShardMap map)
    {
        foreach (var watcher in _watchers.Keys)
            watcher.Writer.TryWrite(map);
    }

    public static Reply Refuse(Call call, StatusCode code, string reason, string applied = "no", params IMessage[] details)
    {
        var status = CallStatus.Create(code, reason, $"refused: {reason}", applied);
        status.Details.AddRange(details.Select(Google.Protobuf.WellKnownTypes.Any.Pack));
        return new Reply { Id = call.Id, Code = status.Code, Status = status.ToByteString() };
    }

    public override async Task Exchange(
        IAsyncStreamReader<ExchangeRequest> requestStream, IServerStreamWriter<ExchangeResponse> responseStream, ServerCallContext context)
    {
        var writing = new SemaphoreSlim(1);
        while (await requestStream.MoveNext(context.CancellationToken))
        {
            Messages++;
            foreach (var call in requestStream.Current.Calls)
                _ = AnswerAsync(call);
            foreach (var id in requestStream.Current.Cancelled)
                Cancelled.Enqueue(id);
        }

        async Task AnswerAsync(Call call)
        {
            var isOfSession = call.Method is Method.OpenSession or Method.EndSession;
            if (!isOfSession)
                Calls.Enqueue(call);
            var reply = (!isOfSession && Script is { } script ? await script(call) : null) ?? Serve(call);
            if (call.ReplyBytesMax != 0 && reply.Response.Length > call.ReplyBytesMax)
            {
                var large = CallStatus.ReplyLarge(reply.Response.Length);
                reply = new Reply { Id = call.Id, Code = large.Code, Status = large.ToByteString() };
            }
            if (reply.Id == 0)
                return;
            await writing.WaitAsync(context.CancellationToken);
            await responseStream.WriteAsync(new ExchangeResponse { Replies = { reply } });
            Interlocked.Increment(ref _replies);
            writing.Release();
        }
    }

    public override async Task Scan(ScanRequest request, IServerStreamWriter<ScanPage> responseStream, ServerCallContext context)
    {
        var place = request.Reverse ? LastKey(request) : FirstKey(request);
        var route = _cluster.RouteOf(place);
        Scans.Enqueue(request);
        if (route.Leader != Id && IsForLeader(request.Read))
            throw Hint("NOT_LEADER", route).ToRpcException();
        foreach (var page in _cluster.Scan(route, request, pageEntries: 3))
        {
            ScanScript?.Invoke(page);
            await responseStream.WriteAsync(page);
        }
    }

    private static byte[] FirstKey(ScanRequest request) =>
        new[] { request.Start, request.Prefix, request.ResumeAfter }.Select(bytes => bytes.ToByteArray()).MaxBy(Convert.ToHexString)!;

    // A key of the shard in which the range ends.
    private byte[] LastKey(ScanRequest request)
    {
        var ends = new[] { request.End.ToByteArray(), KeyBounds.EndOfPrefix(request.Prefix.Span), request.ResumeAfter.ToByteArray() }.Where(
            end => end.Length > 0).ToArray();
        if (ends.Length == 0)
            return [0xFF, 0xFF];
        var end = ends.MinBy(Convert.ToHexString)!;
        var before = _cluster.ToMap().Shards.Where(route => route.Start.Span.SequenceCompareTo(end) < 0).MaxBy(route => Convert.ToHexString(route.Start.Span))!;
        return before.Start.ToByteArray();
    }

    private static Status Hint(string reason, ShardRoute route)
    {
        var status = CallStatus.Create(StatusCode.Unavailable, reason, $"refused: {reason}", "no");
        status.Details.Add(Google.Protobuf.WellKnownTypes.Any.Pack(new RouteHint { Routes = { route } }));
        return status;
    }

    /// <summary>Executes a call and returns the reply.</summary>
    public Reply Serve(Call call)
    {
        var message = call.Request;
        return call.Method switch
        {
            Method.Get => Get(call, GetRequest.Parser.ParseFrom(message)),
            Method.Count => Count(call, CountRequest.Parser.ParseFrom(message)),
            Method.List => List(call, ListRequest.Parser.ParseFrom(message)),
            Method.GetMany => GetMany(call, GetManyRequest.Parser.ParseFrom(message)),
            Method.OpenSession => AtLeader(
                call, OpenSessionRequest.Parser.ParseFrom(message).Key, key => _cluster.OpenSession(_cluster.RouteOf(key.Span).Shard)),
            Method.EndSession => AtLeader(
                call, EndSessionRequest.Parser.ParseFrom(message).Key,
                key => _cluster.EndSession(_cluster.RouteOf(key.Span).Shard, EndSessionRequest.Parser.ParseFrom(message).Session)),
            Method.Put => Put(call, PutRequest.Parser.ParseFrom(message)),
            Method.Delete => Delete(call, DeleteRequest.Parser.ParseFrom(message)),
            Method.Write => Write(call, WriteRequest.Parser.ParseFrom(message)),
            _ => Refuse(call, StatusCode.InvalidArgument, "BAD_REQUEST"),
        };
    }

    private Reply Get(Call call, GetRequest request) => IsForLeader(request.Read)
        ? AtLeader(call, request.Key, key => _cluster.Get(key.Span))
        : new Reply { Id = call.Id, Response = _cluster.Get(request.Key.Span).ToByteString() };

    private Reply GetMany(Call call, GetManyRequest request)
    {
        ShardRoute[] routes = [.. request.Keys.Select(key => _cluster.RouteOf(key.Span)).DistinctBy(route => route.Shard)];
        if (routes.Length > 1)
            return Refuse(call, StatusCode.FailedPrecondition, "SHARDS_DIFFER", details: new RouteHint { Routes = { routes } });
        var response = new GetManyResponse { Entries = { request.Keys.Select(key => _cluster.Get(key.Span)) } };
        return IsForLeader(request.Read) ? AtLeader(call, request.Keys[0], _ => response) : new Reply { Id = call.Id, Response = response.ToByteString() };
    }

    private Reply Count(Call call, CountRequest request)
    {
        var scan = new ScanRequest { Start = request.Start, End = request.End, Prefix = request.Prefix };
        Reply Answer(ByteString first)
        {
            var route = _cluster.RouteOf(first.Span);
            var response = new CountResponse { Position = new Position { Shard = route.Shard, Etag = new V1.Etag { Epoch = 1 } } };
            foreach (var page in _cluster.Scan(route, scan, pageEntries: 3))
            {
                response.Count += (ulong)page.Entries.Count;
                if (page.HasNextStart)
                    response.NextStart = page.NextStart;
            }
            return new Reply { Id = call.Id, Response = response.ToByteString() };
        }
        var first = ByteString.CopyFrom(FirstKey(scan));
        return IsForLeader(request.Read) && _cluster.RouteOf(first.Span).Leader != Id ? AtLeader(call, first, _ => new CountResponse()) : Answer(first);
    }

    // Only the first key of a range, without its value.
    private Reply List(Call call, ListRequest request) => AtLeader(call, ByteString.CopyFrom(RouteKeys.Of(request).Span), _ =>
    {
        var found = _cluster.Get(request.Start.Span);
        var response = new ListResponse { Position = found.Position };
        if (found.Found)
            response.Entries.Add(new V1.Entry { Key = request.Start, Etag = found.Etag });
        return response;
    });

    private static bool IsForLeader(ReadOptions? read) => (read?.Mode ?? ReadMode.Unspecified).IsForLeader();

    private Reply Put(Call call, PutRequest request) => Change(
        call, request.RequestId, request.Key, request.Conditions,
        [new Operation { Put = new PutOperation { Key = request.Key, Value = request.Value } }], position => new PutResponse { Position = position });

    private Reply Delete(Call call, DeleteRequest request)
    {
        var existed = _cluster.Get(request.Key.Span).Found;
        return Change(
            call, request.RequestId, request.Key, request.Conditions,
            [new Operation { Delete = new DeleteOperation { Key = request.Key } }], position => new DeleteResponse { Position = position, Existed = existed });
    }

    private Reply Write(Call call, WriteRequest request)
    {
        var keys = request.Operations.Select(operation => operation.Put?.Key ?? operation.Delete.Key).ToArray();
        return keys.Select(key => _cluster.RouteOf(key.Span).Shard).Distinct().Count() > 1
            ? Refuse(call, StatusCode.FailedPrecondition, "SHARDS_DIFFER")
            : Change(call, request.RequestId, keys[0], request.Conditions, request.Operations, position => new WriteResponse { Position = position });
    }

    private Reply Change(
        Call call, RequestId? id, ByteString key, IEnumerable<Condition> conditions, IEnumerable<Operation> operations, Func<Position, IMessage> toResponse)
    {
        if (key.Length is 0 or > 2048)
            return Refuse(call, StatusCode.InvalidArgument, key.IsEmpty ? "KEY_EMPTY" : "KEY_TOO_LONG");
        var route = _cluster.RouteOf(key.Span);
        if (route.Leader != Id)
            return AtLeader(call, key, _ => new GetResponse());
        if (id is null)
            return Execute(call, key, conditions, operations, toResponse);
        if (_cluster.Once(route.Shard, id, () => Execute(call, key, conditions, operations, toResponse)) is not { } first)
            return Refuse(call, StatusCode.Aborted, "SESSION_EXPIRED", "unknown");
        return new Reply(first) { Id = call.Id };
    }

    private Reply Execute(Call call, ByteString key, IEnumerable<Condition> conditions, IEnumerable<Operation> operations, Func<Position, IMessage> toResponse)
    {
        foreach (var condition in conditions.Where(condition => condition.Key.IsEmpty))
            condition.Key = key;
        if (_cluster.Write(conditions, operations) is { } position)
            return new Reply { Id = call.Id, Response = toResponse(position).ToByteString() };
        var status = CallStatus.Create(StatusCode.FailedPrecondition, "CONDITION_FAILED", "condition 0 does not hold", "no");
        var info = status.Details[0].Unpack<Google.Rpc.ErrorInfo>();
        info.Metadata["condition"] = "0";
        info.Metadata["shard"] = "1";
        info.Metadata["etag"] = new KvCluster.Etag(1, 7).ToString();
        status.Details[0] = Google.Protobuf.WellKnownTypes.Any.Pack(info);
        return new Reply { Id = call.Id, Code = status.Code, Status = status.ToByteString() };
    }

    private Reply AtLeader(Call call, ByteString key, Func<ByteString, IMessage> serve)
    {
        var route = _cluster.RouteOf(key.Span);
        if (route.Leader == Id)
            return new Reply { Id = call.Id, Response = serve(key).ToByteString() };
        _misdirected[call] = true;
        var status = Hint(call.Shard == route.Shard ? "NOT_LEADER" : "WRONG_SHARD", route);
        return new Reply { Id = call.Id, Code = status.Code, Status = status.ToByteString() };
    }

    /// <summary>What it finds when it is examined; null: its port for operators is closed.</summary>
    public Admin.V1.NodeExamination? Examination { get; set; }

    /// <summary>What it tells of its last minutes.</summary>
    public V1.NodeHistory? History { get; set; }

    private sealed class ClusterCalls(FakeNode node) : Cluster.ClusterBase
    {
        public override async Task WatchShards(WatchShardsRequest request, IServerStreamWriter<V1.ShardMap> responseStream, ServerCallContext context)
        {
            var maps = Channel.CreateUnbounded<V1.ShardMap>();
            await node.MapMayGo;
            node._watchers[maps] = true;
            await responseStream.WriteAsync(node._cluster.ToMap());
            await foreach (var map in maps.Reader.ReadAllAsync(context.CancellationToken))
                await responseStream.WriteAsync(map);
        }

        public override Task<GetStatusResponse> GetStatus(GetStatusRequest request, ServerCallContext context) => Task.FromResult(new GetStatusResponse
        {
            Cluster = "fake",
            Nodes =
            {
                new V1.NodeStatus
                {
                    Node = node.Id,
                    Address = node.Address,
                    Version = "1",
                    Memory = request.Activity
                        ? new V1.NodeMemory
                        {
                            BudgetBytes = 1_000, ChangedPagesBytes = 100, ReaderPagesBytes = 20, FreePagesBytes = 3,
                            JournalBytes = 40, JournalIndexBytes = 5, RequestsBytes = 6, HeldBackUs = 7
                        }
                        : null,
                    History = request.History ? node.History : null,
                    Replicas =
                    {
                        new V1.ReplicaStatus
                        {
                            Route = node._cluster.ToMap().Shards[0], Role = Role.Leader, DataBytes = 8192, DataAllocatedBytes = 4096,
                            Digest = request.Digest ? ByteString.CopyFrom(1, 2, 3) : ByteString.Empty
                        }
                    },
                },
            },
        });
    }

    private sealed class AdminCalls(FakeNode node) : Admin.V1.Admin.AdminBase
    {
        public override Task<ExamineResponse> Examine(ExamineRequest request, ServerCallContext context) => node.Examination is { } examination
            ? Task.FromResult(new ExamineResponse { Nodes = { new Admin.V1.NodeExamination(
                examination) { ClockUs = (DateTimeOffset.UtcNow - DateTimeOffset.UnixEpoch).Ticks / TimeSpan.TicksPerMicrosecond } } })
            : throw new RpcException(new global::Grpc.Core.Status(StatusCode.Unavailable, "the port is closed"));

        public override Task<TransferResponse> Transfer(TransferRequest request, ServerCallContext context)
        {
            node.Transfers.Enqueue(request);
            return ChangeAsync(new TransferResponse { Leader = 2 });
        }

        public override Task<DrainResponse> Drain(DrainRequest request, ServerCallContext context) => ChangeAsync(new DrainResponse());

        public override Task<ReplaceResponse> Replace(ReplaceRequest request, ServerCallContext context) =>
            ChangeAsync(new ReplaceResponse { Operation = new Admin.V1.ClusterOperation { Id = new OperationId(new(request.Shard), 1)
                .ToString(), Shard = request.Shard, State = OperationState.Running } });

        public override Task WatchOperation(
            WatchOperationRequest request, IServerStreamWriter<WatchOperationResponse> responseStream, ServerCallContext context) =>
                responseStream.WriteAsync(
                    new WatchOperationResponse { Operation = new Admin.V1.ClusterOperation { Id = request.Id, State = OperationState.Done } });

        public override Task<QuarantineResponse> Quarantine(QuarantineRequest request, ServerCallContext context) => ChangeAsync(new QuarantineResponse());

        public override Task<PlaceResponse> Place(PlaceRequest request, ServerCallContext context) => ChangeAsync(new PlaceResponse());

        public override Task<LevelsResponse> Levels(LevelsRequest request, ServerCallContext context) => ChangeAsync(new LevelsResponse());

        private async Task<T> ChangeAsync<T>(T response)
        {
            Interlocked.Increment(ref node._adminCalls);
            await (node.AdminScript?.Invoke() ?? Task.CompletedTask);
            return response;
        }

        public override Task<CheckpointResponse> Checkpoint(CheckpointRequest request, ServerCallContext context) =>
            Task.FromResult(new CheckpointResponse { Replicas = { new Admin.V1.ReplicaCheckpoint { Node = node.Id, Shard = 1, DataBytes = 8192 } } });
    }
}
