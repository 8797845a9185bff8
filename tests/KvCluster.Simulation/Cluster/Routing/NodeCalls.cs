using System.Buffers.Binary;
using Google.Protobuf;
using KvCluster.Node.Api.Errors;
using KvCluster.Node.Shards;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;
using KvCluster.V1;
using KvCluster.Wire;
using WriteRequest = KvCluster.Storage.Transactions.WriteRequest;

namespace KvCluster.Simulation.Cluster.Routing;

/// <summary>
/// Serves encoded calls at one node as its API does, with the same checks of shard and generation and the same refusals. Answers of replicas are
/// polled after each work item instead of awaited.
/// </summary>
internal sealed class NodeCalls(ClusterNode node)
{
    public void Start(Call call, Action<Reply> done)
    {
        switch (call.Method)
        {
            case Method.Get:
                var get = GetRequest.Parser.ParseFrom(call.Request);
                if (Find(get.Key, call, get.Read?.Mode ?? ReadMode.Leader, done) is { } read)
                    Read(read, call, get.Read, [get.Key], answers => done(Answer(call, answers[0])), done);
                break;
            case Method.GetMany:
                var many = GetManyRequest.Parser.ParseFrom(call.Request);
                if (Find(many.Keys[0], call, many.Read?.Mode ?? ReadMode.Leader, done) is { } readMany)
                    Read(readMany, call, many.Read, [.. many.Keys], answers => done(Answer(call, new GetManyResponse { Entries = { answers } })), done);
                break;
            case Method.OpenSession:
                if (Find(OpenSessionRequest.Parser.ParseFrom(call.Request).Key, call, ReadMode.Leader, done) is { } opened)
                    Open(opened, call, done);
                break;
            case Method.Write:
                var write = V1.WriteRequest.Parser.ParseFrom(call.Request);
                if (Find(write.Operations[0].Put.Key, call, ReadMode.Leader, done) is { } written)
                    Change(
                        written, call,
                        request => Fill(request, write.Conditions, write.Operations.Select(operation => operation.Put), write.Operations[0].Put.Key),
                        write.RequestId, done);
                break;
            case Method.Put:
                var put = PutRequest.Parser.ParseFrom(call.Request);
                if (Find(put.Key, call, ReadMode.Leader, done) is { } changed)
                    Change(
                        changed, call, request => Fill(request, put.Conditions, [new PutOperation { Key = put.Key, Value = put.Value }], put.Key),
                        put.RequestId, done);
                break;
            default:
                throw new Violation(Rule.Contract, $"no client of a run calls {call.Method}");
        }
    }

    private static Reply Answer(Call call, IMessage response) => new() { Id = call.Id, Response = response.ToByteString() };

    private static Reply Refuse(Call call, ApiError refusal) => new() { Id = call.Id, Code = (int)refusal.Code, Status = refusal.ToStatus().ToByteString() };

    private static V1.Position At(ShardReplica replica, Etag etag) =>
        new() { ShardId = replica.Shard, Etag = new V1.Etag { Epoch = etag.Epoch, Change = etag.Change } };

    private static void Fill(WriteRequest request, IEnumerable<Condition> conditions, IEnumerable<PutOperation> puts, ByteString key)
    {
        foreach (var condition in conditions)
        {
            var of = condition.Key.IsEmpty ? key : condition.Key;
            if (condition.TestCase == Condition.TestOneofCase.ValueEquals)
                request.AddCondition(of.Span, ConditionKind.ValueEquals, value: condition.ValueEquals.Span);
            else if (condition.TestCase == Condition.TestOneofCase.EtagEquals)
                request.AddCondition(of.Span, ConditionKind.EtagEquals, new Etag(condition.EtagEquals.Epoch, condition.EtagEquals.Change));
            else
                request.AddCondition(of.Span, condition.Exists ? ConditionKind.Exists : ConditionKind.Absent);
        }

        foreach (var put in puts)
            request.Put(put.Key.Span, put.Value.Span);
    }

    // As ShardLookup does: the replica here that owns the key, if it is the shard that the caller means and can serve. Otherwise the caller is told.
    private ShardReplica? Find(ByteString key, Call call, ReadMode mode, Action<Reply> done)
    {
        var route = node.Map.Find(key.Span);
        var replica = node.Neighbour is { Replica: { } neighbour } && route?.ShardId == neighbour.Shard ? neighbour
            : node.Replica is { } own && route?.ShardId == own.Shard ? own : null;
        var refusal = replica is null || (call.Generation != 0 && call.ShardId != replica.Shard) ? ApiErrors.WrongShard(replica?.Route ?? route)
            : replica.Failure is { } failure ? ApiErrors.ReplicaFailed(replica.Route, failure.Message)
            : mode.IsForLeader() && !replica.IsServing ? ApiErrors.NotLeader(replica.Route, node.Id) : null;
        if (refusal is null)
            return replica;
        done(Refuse(call, refusal));
        return null;
    }

    private void Open(ShardReplica replica, Call call, Action<Reply> done)
    {
        var session = new byte[WireWriter.SessionBytes];
        BinaryPrimitives.WriteUInt128BigEndian(session, node.DrawSession());
        Submit(
            replica, call, request => request.OpenSession(BinaryPrimitives.ReadUInt128BigEndian(session), new QuotaOwner(0, 1)),
            position => new OpenSessionResponse { Position = position, Session = ByteString.CopyFrom(session) }, done);
    }

    private void Change(ShardReplica replica, Call call, Action<WriteRequest> fill, RequestId? id, Action<Reply> done)
    {
        if (id is not null && id.ShardId != replica.Shard)
        {
            done(Refuse(call, ApiErrors.SessionExpired));
            return;
        }

        Submit(replica, call, Identified, static position => new WriteResponse { Position = position }, done);

        void Identified(WriteRequest request)
        {
            fill(request);
            if (id is not null)
                    request.Identify(BinaryPrimitives.ReadUInt128BigEndian(id.Session.Span), id.Sequence, id.LowestOpen);
        }
    }

    private void Submit(ShardReplica replica, Call call, Action<WriteRequest> fill, Func<V1.Position, IMessage> toResponse, Action<Reply> done)
    {
        var request = WriteRequest.Rent();
        fill(request);
        request.DeadlineTimestamp = node.Clock.GetTimestamp() + (call.TimeoutMs * node.Clock.TimestampFrequency / 1_000);
        node.Events.Poll(replica.Writes.SubmitAsync(request).AsTask(), result => done(result.Outcome == WriteOutcome.Applied
            ? Answer(call, toResponse(At(replica, result.Etag)))
            : Refuse(call, ApiErrors.Of(result, replica.Route, node.Id))));
    }

    // As ReadOpener does. A replica that does not catch up does not answer, and its caller's time for it ends.
    private void Read(ShardReplica replica, Call call, ReadOptions? options, ByteString[] keys, Action<GetResponse[]> answer, Action<Reply> done)
    {
        switch (options?.Mode ?? ReadMode.Leader)
        {
            case ReadMode.Leader or ReadMode.Replica when replica.Reads.TryOpenLinearizable(out var snapshot):
                answer(Read(replica, snapshot, keys));
                break;
            case ReadMode.Stale:
                answer(Read(replica, replica.Reads.OpenSnapshot(), keys));
                break;
            case ReadMode.Session:
                var seen = options!.Seen.FirstOrDefault(position => position.ShardId == replica.Shard)?.Etag;
                node.WhenApplied(replica, new Etag(seen?.Epoch ?? 0, seen?.Change ?? 0), () => answer(Read(replica, replica.Reads.OpenSnapshot(), keys)));
                break;
            case ReadMode.Replica when !replica.IsServing:
                node.Events.Poll(replica.Reads.AskLeaderAsync(CancellationToken.None), committed =>
                {
                    if (committed is { } etag)
                        node.WhenApplied(replica, etag, () => answer(Read(replica, replica.Reads.OpenSnapshot(), keys)));
                    else
                        done(Refuse(call, ApiErrors.LeaderSilent(replica.Route, node.Id)));
                });
                break;
            default:
                node.Events.Poll(replica.Reads.ConfirmAsync(CancellationToken.None), confirmed =>
                {
                    if (confirmed is not null)
                        answer(Read(replica, replica.Reads.OpenSnapshot(), keys));
                    else
                        done(Refuse(call, ApiErrors.NotLeader(replica.Route, node.Id)));
                });
                break;
        }
    }

    private static GetResponse[] Read(ShardReplica replica, ReadSnapshot snapshot, ByteString[] keys)
    {
        using (snapshot)
        {
            var position = At(replica, snapshot.Etag);
            var answers = new GetResponse[keys.Length];
            for (var i = 0; i < keys.Length; i++)
            {
                answers[i] = new GetResponse { Position = position };
                if (!snapshot.TryGet(TreeId.Kv, keys[i].Span, out var stored))
                    continue;
                answers[i].Found = true;
                answers[i].Value = ByteString.CopyFrom(KvValue.Read(stored, out var etag));
                answers[i].Etag = new V1.Etag { Epoch = etag.Epoch, Change = etag.Change };
            }

            return answers;
        }
    }
}
