using Etcdserverpb;
using Google.Protobuf;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Processes;
using KvCluster.V1;
using Xunit.Abstractions;
using static Etcdserverpb.Compare.Types;
using CountRequest = KvCluster.V1.CountRequest;
using PutRequest = KvCluster.V1.PutRequest;
using WatchRequest = KvCluster.V1.WatchRequest;

namespace KvCluster.Tests.Node;

/// <summary>
/// What users of etcd rely on, and what KvCluster does instead. Each test does the same with both, so that neither column of proto/Contract/ETCD.md is from
/// memory. Where etcd is missing, only KvCluster's side is tested, and the output says so.
/// </summary>
public sealed class EtcdBehaviourTests(EtcdBehaviourTests.Both both, ITestOutputHelper output) : IClassFixture<EtcdBehaviourTests.Both>
{
    private readonly Kv.KvClient _kv = both.Cluster.KvOf(1);
    private readonly string _prefix = $"a/{Guid.NewGuid():N}/";

    [Fact]
    public async Task CompareValue_WithEachRelation_AndOfAMissingKey()
    {
        await PutAsync("k", "5");
        (Relation Ours, CompareResult Etcds, string Other, bool Holds)[] compares =
        [
            (Relation.Equal, CompareResult.Equal, "5", true),
            (Relation.NotEqual, CompareResult.NotEqual, "5", false), (Relation.Less, CompareResult.Less, "6", true),
            (Relation.Greater, CompareResult.Greater, "4", true), (Relation.Greater, CompareResult.Greater, "5", false),
        ];
        foreach (var (ours, etcds, other, holds) in compares)
        {
            Assert.Equal(holds, await HoldsAsync(new Condition { Key = Key("k"), Value = new ValueComparison { Relation = ours, Value = Utf8(other) } }));
            await EtcdAsync(async etcd => Assert.Equal(
                holds, await HoldsAsync(etcd, new Compare { Key = Key("k"), Target = CompareTarget.Value, Result = etcds, Value = Utf8(other) })));
        }
        // Of a key that does not exist no compare of its value holds.
        Assert.False(await HoldsAsync(new Condition { Key = Key("missing"), Value = new ValueComparison { Relation = Relation.NotEqual, Value = Utf8("5") } }));
        await EtcdAsync(async etcd => Assert.False(
            await HoldsAsync(etcd, new Compare { Key = Key("missing"), Target = CompareTarget.Value, Result = CompareResult.NotEqual, Value = Utf8("5") })));
    }

    [Fact]
    public async Task CompareExistence_IsAVersionOrACreateRevisionOfZero()
    {
        await PutAsync("k", "v");
        foreach (var (name, exists) in ((string, bool)[])[("k", true), ("missing", false)])
        {
            Assert.Equal(exists, await HoldsAsync(new Condition { Key = Key(name), Exists = true }));
            Assert.Equal(!exists, await HoldsAsync(new Condition { Key = Key(name), Exists = false }));
            await EtcdAsync(async etcd =>
            {
                Assert.Equal(!exists, await HoldsAsync(
                    etcd, new Compare { Key = Key(name), Target = CompareTarget.Version, Result = CompareResult.Equal, Version = 0 }));
                Assert.Equal(!exists, await HoldsAsync(
                    etcd, new Compare { Key = Key(name), Target = CompareTarget.Create, Result = CompareResult.Equal, CreateRevision = 0 }));
            });
        }
    }

    [Fact]
    public async Task CompareModRevision_IsTheEtag()
    {
        var (ours, etcds) = await PutAsync("k", "1");
        Assert.True(await HoldsAsync(new Condition { Key = Key("k"), EtagEquals = ours }));
        await EtcdAsync(async etcd => Assert.True(
            await HoldsAsync(etcd, new Compare { Key = Key("k"), Target = CompareTarget.Mod, Result = CompareResult.Equal, ModRevision = etcds })));
        await PutAsync("k", "2");
        Assert.False(await HoldsAsync(new Condition { Key = Key("k"), EtagEquals = ours }));
        Assert.True(await HoldsAsync(new Condition { Key = Key("k"), Etag = new EtagComparison { Relation = Relation.Greater, Etag = ours } }));
        await EtcdAsync(async etcd => Assert.True(
            await HoldsAsync(etcd, new Compare { Key = Key("k"), Target = CompareTarget.Mod, Result = CompareResult.Greater, ModRevision = etcds })));
    }

    [Fact]
    public async Task Txn_AppliesOneListWhole_AndAnswersEachOperation()
    {
        await PutAsync("k", "1");
        var answer = await _kv.TransactAsync(new TransactRequest
        {
            Conditions = { new Condition { Key = Key("k"), ValueEquals = Utf8("2") } },
            Success = { Put("success", "v") },
            Failure = { Put("failure", "v"), new Operation { Get = new KeyOperation { Key = Key("failure") } } },
        });
        Assert.Equal((false, "v"), (answer.Succeeded, answer.Results[1].Entries[0].Value.ToStringUtf8()));
        Assert.False((await GetAsync("success")).Found);
        await EtcdAsync(async etcd =>
        {
            var txn = await etcd.TxnAsync(new TxnRequest
            {
                Compare = { new Compare { Key = Key("k"), Target = CompareTarget.Value, Result = CompareResult.Equal, Value = Utf8("2") } },
                Success = { EtcdPut("success", "v") },
                Failure = { EtcdPut("failure", "v"), new RequestOp { RequestRange = new RangeRequest { Key = Key("failure") } } },
            });
            Assert.Equal((false, "v"), (txn.Succeeded, txn.Responses[1].ResponseRange.Kvs[0].Value.ToStringUtf8()));
        });
    }

    [Fact]
    public async Task Txn_ThatPutsAKeyTwice_IsRefusedByEtcd_AndTheLastCountsHere()
    {
        await _kv.WriteAsync(new V1.WriteRequest { Operations = { Put("k", "1"), Put("k", "2") } });
        Assert.Equal("2", (await GetAsync("k")).Value.ToStringUtf8());
        await EtcdAsync(async etcd => Assert.Equal(
            StatusCode.InvalidArgument,
            (await Assert.ThrowsAsync<RpcException>(
                () => etcd.TxnAsync(new TxnRequest { Success = { EtcdPut("k", "1"), EtcdPut("k", "2") } }).ResponseAsync)).StatusCode));
    }

    [Fact]
    public async Task Txn_OfManyOperations_IsRefusedByEtcdAbove128_AndHereAbove10000()
    {
        await _kv.WriteAsync(new V1.WriteRequest { Operations = { Enumerable.Range(0, 129).Select(number => Put($"{number}", "v")) } });
        await EtcdAsync(async etcd => Assert.Equal(
            StatusCode.InvalidArgument,
            (await Assert.ThrowsAsync<RpcException>(() => etcd.TxnAsync(
                new TxnRequest { Success = { Enumerable.Range(0, 129).Select(number => EtcdPut($"{number}", "v")) } }).ResponseAsync)).StatusCode));
    }

    [Fact]
    public async Task Txn_HasOneRevisionInEtcd_AndAnEtagForEachOperationHere()
    {
        var answer = await _kv.WriteAsync(new V1.WriteRequest { WithResults = true, Operations = { Put("1", "v"), Put("2", "v") } });
        Assert.Equal(answer.Results[0].Etag.Change + 1, answer.Results[1].Etag.Change);
        await EtcdAsync(async etcd =>
        {
            await etcd.TxnAsync(new TxnRequest { Success = { EtcdPut("1", "v"), EtcdPut("2", "v") } });
            Assert.Single((await etcd.RangeAsync(RangeOf(""))).Kvs.Select(static entry => entry.ModRevision).Distinct());
        });
    }

    [Fact]
    public async Task Range_EndsBeforeItsEnd_AndALimitTellsThatThereIsMore()
    {
        foreach (var name in (string[])["1", "2", "3", "4"])
            await PutAsync(name, "v");
        var page = await _kv.ListAsync(new ListRequest { Start = Key("1"), End = Key("4"), Limit = 2 });
        Assert.Equal([Key("1"), Key("2")], page.Entries.Select(static entry => entry.Key));
        Assert.False(page.NextPageToken.IsEmpty);
        Assert.Equal(3ul, (await _kv.CountAsync(new CountRequest { Start = Key("1"), End = Key("4") })).Count);
        await EtcdAsync(async etcd =>
        {
            // etcd counts the whole range in the same answer.
            var range = await etcd.RangeAsync(new RangeRequest { Key = Key("1"), RangeEnd = Key("4"), Limit = 2 });
            Assert.Equal([Key("1"), Key("2")], range.Kvs.Select(static entry => entry.Key));
            Assert.Equal((true, 3), (range.More, range.Count));
        });
    }

    [Fact]
    public async Task Range_InDescendingOrderOfKeys_AndOfKeysOnly()
    {
        foreach (var name in (string[])["2", "1", "3"])
            await PutAsync(name, "v");
        var page = await _kv.ListAsync(new ListRequest { Prefix = Key(""), Reverse = true, KeysOnly = true });
        Assert.Equal([(Key("3"), 0), (Key("2"), 0), (Key("1"), 0)], page.Entries.Select(static entry => (entry.Key, entry.Value.Length)));
        await EtcdAsync(async etcd =>
        {
            var range = RangeOf("");
            (range.SortOrder, range.SortTarget, range.KeysOnly) = (RangeRequest.Types.SortOrder.Descend, RangeRequest.Types.SortTarget.Key, true);
            Assert.Equal(
                [(Key("3"), 0), (Key("2"), 0), (Key("1"), 0)], (await etcd.RangeAsync(range)).Kvs.Select(static entry => (entry.Key, entry.Value.Length)));
        });
    }

    [Fact]
    public async Task Range_OfAnOlderRevision_IsServedByEtcd_AndHereOnlyToGoOnWithPages()
    {
        var (_, revision) = await PutAsync("1", "old");
        await PutAsync("2", "old");
        var first = await _kv.ListAsync(new ListRequest { Prefix = Key(""), Limit = 1 });
        await PutAsync("2", "new");
        Assert.Equal("old", (await _kv.ListAsync(new ListRequest { Prefix = Key(""), Limit = 1, PageToken = first.NextPageToken })).Entries
            .Single().Value.ToStringUtf8());
        await EtcdAsync(async etcd => Assert.Equal(
            "old", (await etcd.RangeAsync(new RangeRequest { Key = Key("2"), Revision = revision + 1 })).Kvs.Single().Value.ToStringUtf8()));
    }

    [Fact]
    public async Task Put_OfTheSameValue_IsAChange()
    {
        var (first, revision) = await PutAsync("k", "v");
        var (second, next) = await PutAsync("k", "v");
        Assert.True(second.Change > first.Change);
        await EtcdAsync(_ =>
        {
            Assert.True(next > revision);
            return Task.CompletedTask;
        });
    }

    [Fact]
    public async Task Delete_OfAMissingKey_TakesARevisionHereOnly()
    {
        var (before, revision) = await PutAsync("k", "v");
        var deleted = await _kv.DeleteAsync(new V1.DeleteRequest { Key = Key("missing") });
        Assert.False(deleted.Existed);
        Assert.True(deleted.Position.Etag.Change > before.Change);
        await EtcdAsync(async etcd =>
        {
            var answer = await etcd.DeleteRangeAsync(new Etcdserverpb.DeleteRangeRequest { Key = Key("missing") });
            Assert.Equal((0, revision), (answer.Deleted, answer.Header.Revision));
        });
    }

    [Fact]
    public async Task Key_WithoutBytes_IsRefused()
    {
        Assert.Equal(
            StatusCode.InvalidArgument,
            (await Assert.ThrowsAsync<RpcException>(() => _kv.PutAsync(new PutRequest { Value = Utf8("v") }).ResponseAsync)).StatusCode);
        await EtcdAsync(async etcd => Assert.Equal(
            StatusCode.InvalidArgument,
            (await Assert.ThrowsAsync<RpcException>(() => etcd.PutAsync(new Etcdserverpb.PutRequest { Value = Utf8("v") }).ResponseAsync)).StatusCode));
    }

    [Fact]
    public async Task Value_AboveAMebibyteAndAHalf_IsTooLargeForEtcdOnly()
    {
        var value = ByteString.CopyFrom(new byte[1_700_000]);
        await _kv.PutAsync(new PutRequest { Key = Key("k"), Value = value });
        await EtcdAsync(async etcd => Assert.Equal(
            StatusCode.InvalidArgument,
            (await Assert.ThrowsAsync<RpcException>(
                () => etcd.PutAsync(new Etcdserverpb.PutRequest { Key = Key("k"), Value = value }).ResponseAsync)).StatusCode));
    }

    [Fact]
    public async Task Watch_FromAPastRevision_TellsEveryChange_InEtcdWithWhatWasBefore()
    {
        var (start, revision) = await PutAsync("k", "1");
        await PutAsync("k", "2");
        await _kv.DeleteAsync(new V1.DeleteRequest { Key = Key("k") });
        var position = new Position { Shard = 0, Etag = start };
        var events = await EventsAsync(new WatchRequest { Prefix = Key(""), After = { position }, WithPrevious = true }, 2);
        Assert.Equal([(EventKind.Put, "2"), (EventKind.Delete, "")], events.Select(static one => (one.Kind, one.Value.ToStringUtf8())));
        // Here what was before is known only of changes that were recent when they were sent.
        Assert.True(!events[0].PreviousKnown || events[0].PreviousEtag.Equals(start));
        await EtcdAsync(async etcd =>
        {
            await etcd.DeleteRangeAsync(new Etcdserverpb.DeleteRangeRequest { Key = Key("k") });
            // etcd's start revision is the first that is sent; the position here is the last that is not.
            var told = await EtcdEventsAsync(new WatchCreateRequest { Key = Key("k"), StartRevision = revision + 1, PrevKv = true }, 2);
            Assert.Equal(
                [(Mvccpb.Event.Types.EventType.Put, "2"), (Mvccpb.Event.Types.EventType.Delete, "")],
                told.Select(static one => (one.Type, one.Kv.Value.ToStringUtf8())));
            Assert.Equal("1", told[0].PrevKv.Value.ToStringUtf8());
        });
    }

    [Fact]
    public async Task DeleteOfARange_IsOneEventHere_AndOneForEachKeyInEtcd()
    {
        var (start, revision) = await PutAsync("1", "v");
        await PutAsync("2", "v");
        Assert.Equal(2ul, (await _kv.DeleteRangeAsync(new V1.DeleteRangeRequest { Prefix = Key("") })).Deleted);
        var events = await EventsAsync(new WatchRequest { Prefix = Key(""), After = { new Position { Shard = 0, Etag = start } } }, 2);
        Assert.Equal([EventKind.Put, EventKind.DeleteRange], events.Select(static one => one.Kind));
        await EtcdAsync(async etcd =>
        {
            var range = RangeOf("");
            Assert.Equal(2, (await etcd.DeleteRangeAsync(new Etcdserverpb.DeleteRangeRequest { Key = range.Key, RangeEnd = range.RangeEnd })).Deleted);
            var told = await EtcdEventsAsync(new WatchCreateRequest { Key = range.Key, RangeEnd = range.RangeEnd, StartRevision = revision + 2 }, 2);
            Assert.All(told, static one => Assert.Equal(Mvccpb.Event.Types.EventType.Delete, one.Type));
        });
    }

    [Fact]
    public async Task LeaseRevoked_OrSessionEnded_DeletesItsKeysAtOnce()
    {
        var session = (await _kv.OpenSessionAsync(new OpenSessionRequest { Key = Key("k"), LifetimeMs = 600_000 })).Session;
        await _kv.PutAsync(new PutRequest { Key = Key("k"), Owner = session });
        Assert.Equal(1ul, (await _kv.EndSessionAsync(new EndSessionRequest { Key = Key("k"), Session = session })).Deleted);
        Assert.False((await GetAsync("k")).Found);
        await EtcdAsync(async etcd =>
        {
            var lease = new Lease.LeaseClient(both.Channel!.Calls());
            var granted = await lease.LeaseGrantAsync(new LeaseGrantRequest { TTL = 600 });
            await etcd.PutAsync(new Etcdserverpb.PutRequest { Key = Key("leased"), Lease = granted.ID });
            await lease.LeaseRevokeAsync(new LeaseRevokeRequest { ID = granted.ID });
            Assert.Empty((await etcd.RangeAsync(new RangeRequest { Key = Key("leased") })).Kvs);
        });
    }

    [Fact]
    public async Task LeaseThatEnds_OrTimeToLive_DeletesItsKeys_AndWatchersAreTold()
    {
        var start = (await PutAsync("other", "v")).Ours;
        await _kv.PutAsync(new PutRequest { Key = Key("k"), Value = Utf8("v"), TtlMs = 500 });
        var end = (await EventsAsync(new WatchRequest { Prefix = Key("k"), After = { new Position { Shard = 0, Etag = start } } }, 2))[1];
        Assert.Equal((EventKind.Delete, EventReason.Expired), (end.Kind, end.Reason));
        await EtcdAsync(async etcd =>
        {
            // A lease may end before its put where the machine stalls.
            var put = await Eventually.AnsweredAsync(
                async () =>
                {
                    var granted = await new Lease.LeaseClient(both.Channel!.Calls()).LeaseGrantAsync(new LeaseGrantRequest { TTL = 1 });
                    return await etcd.PutAsync(new Etcdserverpb.PutRequest { Key = Key("leased"), Lease = granted.ID });
                },
                static refused => refused.StatusCode == StatusCode.NotFound);
            var told = await EtcdEventsAsync(new WatchCreateRequest { Key = Key("leased"), StartRevision = put.Header.Revision }, 2);
            // An event of etcd does not say why.
            Assert.Equal(Mvccpb.Event.Types.EventType.Delete, told[1].Type);
        });
    }

    private async Task<(V1.Etag Ours, long Etcds)> PutAsync(string name, string value)
    {
        var ours = (await _kv.PutAsync(new PutRequest { Key = Key(name), Value = Utf8(value) })).Position.Etag;
        var etcds = 0L;
        if (both.Channel is { } channel)
            etcds = (await new KV.KVClient(channel.Calls()).PutAsync(new Etcdserverpb.PutRequest { Key = Key(name), Value = Utf8(value) })).Header.Revision;
        return (ours, etcds);
    }

    private async Task EtcdAsync(Func<KV.KVClient, Task> check)
    {
        if (both.Channel is { } channel)
            await check(new KV.KVClient(channel.Calls()));
        else
            output.WriteLine("SKIPPED etcd's side: etcd and etcdctl are not on this machine");
    }

    private async Task<bool> HoldsAsync(Condition condition) => (await _kv.TransactAsync(new TransactRequest { Conditions = { condition } })).Succeeded;

    private static async Task<bool> HoldsAsync(KV.KVClient etcd, Compare compare) => (await etcd.TxnAsync(new TxnRequest { Compare = { compare } })).Succeeded;

    private async Task<List<V1.Event>> EventsAsync(WatchRequest request, int count)
    {
        using var limit = new CancellationTokenSource(Eventually.Limit);
        using var stream = _kv.Watch(request, cancellationToken: limit.Token);
        var events = new List<V1.Event>();
        while (events.Count < count && await stream.ResponseStream.MoveNext(limit.Token))
            events.AddRange(stream.ResponseStream.Current.Events);
        return events;
    }

    private async Task<List<Mvccpb.Event>> EtcdEventsAsync(WatchCreateRequest request, int count)
    {
        using var limit = new CancellationTokenSource(Eventually.Limit);
        using var stream = new Watch.WatchClient(both.Channel!.Calls()).Watch(cancellationToken: limit.Token);
        await stream.RequestStream.WriteAsync(new Etcdserverpb.WatchRequest { CreateRequest = request });
        var events = new List<Mvccpb.Event>();
        while (events.Count < count && await stream.ResponseStream.MoveNext(limit.Token))
            events.AddRange(stream.ResponseStream.Current.Events);
        return events;
    }

    private Task<GetResponse> GetAsync(string name) => _kv.GetAsync(new GetRequest { Key = Key(name) }).ResponseAsync;

    private RangeRequest RangeOf(string name) => new() { Key = Key(name), RangeEnd = ByteString.CopyFrom(KeyBounds.EndOfPrefix(Key(name).Span)) };

    private Operation Put(string name, string value) => new() { Put = new PutOperation { Key = Key(name), Value = Utf8(value) } };

    private RequestOp EtcdPut(string name, string value) => new() { RequestPut = new Etcdserverpb.PutRequest { Key = Key(name), Value = Utf8(value) } };

    private ByteString Key(string name) => Utf8(_prefix + name);

    private static ByteString Utf8(string text) => ByteString.CopyFromUtf8(text);

    /// <summary>One node, and one member of etcd where there is one.</summary>
    public sealed class Both : IAsyncLifetime
    {
        private EtcdProcesses? _etcd;

        internal NodeCluster Cluster { get; private set; } = null!;

        internal GrpcChannel? Channel { get; private set; }

        public async Task InitializeAsync()
        {
            Cluster = await NodeCluster.StartAsync(1);
            await Cluster.LeaderOfAsync(0);
            if (!EtcdProcesses.AreAvailable)
                return;
            _etcd = await EtcdProcesses.StartAsync();
            Channel = GrpcChannel.ForAddress(_etcd.Endpoints[0]);
        }

        public async Task DisposeAsync()
        {
            Channel?.Dispose();
            if (_etcd is not null)
                await _etcd.DisposeAsync();
            await Cluster.DisposeAsync();
        }
    }
}
