using System.Collections;
using System.Text;
using Google.Protobuf;
using Google.Protobuf.Reflection;
using Google.Rpc;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Client;
using KvCluster.Router;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.Tests.Node;
using KvCluster.V1;
using Microsoft.Extensions.Logging.Abstractions;
using Xunit.Abstractions;
using Method = KvCluster.V1.Method;

namespace KvCluster.Tests.Router;

/// <summary>
/// The same request by the library at the nodes, by a router and at the node itself: each has the same outcome, at once. The library took the condition's key
/// and the node the first operation's, so a Transact across shards took its whole time and then said that there was no leader; and a router refused a range
/// condition that nodes accept.
/// </summary>
public sealed class SameKeysTests(ITestOutputHelper output) : IAsyncLifetime
{
    private static readonly string[] Keys = ["a", "b", "gz", "h", "m", "x", "z"];

    /// <summary>Each method as the library has it. Whoever adds one to the contract adds it here.</summary>
    private static readonly Dictionary<Method, Func<KvClient, IMessage, Task>> ByTheLibrary = new()
    {
        [Method.Get] = Of<GetRequest>(static async (client, get) => await (get.Nearest == Nearest.Unspecified
            ? client.GetAsync(get.Key.Memory)
            : client.GetNearestAsync(get.Key.Memory, (KvNearest)get.Nearest, get.Within.Memory))),
        [Method.GetMany] = Of<GetManyRequest>(static async (client, get) => await client.GetManyAsync([.. get.Keys.Select(static key => key.Memory)])),
        [Method.Put] = Of<PutRequest>(static async (client, put) => await client.PutAsync(put.Key.Memory, put.Value.Memory)),
        [Method.Delete] = Of<DeleteRequest>(static async (client, delete) => await client.DeleteAsync(delete.Key.Memory)),
        [Method.Write] = Of<WriteRequest>(static async (client, write) =>
        {
            var message = new KvWrite();
            message.Message.MergeFrom(write);
            await client.WriteAsync(message);
        }),
        [Method.OpenSession] = Of<OpenSessionRequest>(static async (client, open) => await client.Sessions.OpenAsync(open.Key.Memory, TimeSpan.FromMinutes(1))),
        [Method.DeleteRange] = Of<DeleteRangeRequest>(static async (client, delete) => await client.DeleteRangeAsync(
            new KvRange { Start = delete.Start.Memory, End = delete.End.Memory, Prefix = delete.Prefix.Memory, All = delete.All })),
        [Method.Increment] = Of<IncrementRequest>(static async (client, increment) => await client.IncrementAsync(increment.Key.Memory, increment.By)),
        [Method.Touch] = Of<TouchRequest>(static async (client, touch) => await client.TouchAsync(touch.Key.Memory, timeToLive: null)),
        [Method.Transact] = Of<TransactRequest>(static async (client, transact) =>
        {
            var message = new KvTransaction();
            message.Message.MergeFrom(transact);
            await client.TransactAsync(message);
        }),
        [Method.KeepAlive] = Of<KeepAliveRequest>(static async (client, keep) => await client.Sessions.KeepAliveAsync(
            new KvSession(keep.Key.Memory, keep.Sessions[0].Memory, TimeSpan.FromMinutes(1)))),
        [Method.EndSession] = Of<EndSessionRequest>(static async (client, end) => await client.Sessions.EndAsync(
            new KvSession(end.Key.Memory, end.Session.Memory, TimeSpan.FromMinutes(1)))),
        [Method.List] = Of<ListRequest>(static async (client, list) => await client.ListAsync(
            new KvList { Start = list.Start.Memory, End = list.End.Memory, Prefix = list.Prefix.Memory, Reverse = list.Reverse })),
        [Method.Count] = Of<CountRequest>(static async (client, count) => await client.CountRangeAsync(
            new KvRange { Start = count.Start.Memory, End = count.End.Memory, Prefix = count.Prefix.Memory })),
        [Method.SetAdd] = Of<SetAddRequest>(
            static async (client, add) => await client.Sets.AddAsync(add.Key.Memory, add.Members.Select(static member => (KvKey)member.Memory))),
        [Method.SetRemove] = Of<SetRemoveRequest>(static async (client, remove) => await (remove.All
            ? client.Sets.RemoveAllAsync(remove.Key.Memory)
            : client.Sets.RemoveAsync(remove.Key.Memory, remove.Members.Select(static member => (KvKey)member.Memory)))),
        [Method.SetScan] = Of<SetScanRequest>(static async (client, scan) => await client.Sets.ScanAsync(scan.Key.Memory).ToListAsync()),
        [Method.SetCount] = Of<SetCountRequest>(static async (client, count) => await client.Sets.CountAsync(count.Key.Memory)),
        [Method.SetIntersect] = Of<SetIntersectRequest>(static async (client, intersect) => await client.Sets.IntersectAsync(new KvIntersection
        {
            Keys = [.. intersect.Keys.Select(static key => key.Memory)],
            FacetPrefixes = [.. intersect.FacetPrefixes.Select(static prefix => prefix.Memory)],
        })),
    };

    /// <summary>None that was opened.</summary>
    private static readonly ByteString SomeSession = ByteString.CopyFromUtf8("0123456789abcdef");

    private NodeCluster _cluster = null!;
    private RouterHost _router = null!;
    private GrpcChannel _channel = null!;
    private KvClient _client = null!;

    public async Task InitializeAsync()
    {
        _cluster = await NodeCluster.StartAsync(1, "h"u8.ToArray(), "t"u8.ToArray());
        for (var shard = 0u; shard < 3; shard++)
            await _cluster.LeaderOfAsync(shard);
        _router = await RouterHost.StartAsync(
            new RouterOptions { Listen = "http://127.0.0.1:0", Seeds = [_cluster.AddressOf(1)], Timeout = Eventually.Limit },
            new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None);
        _channel = GrpcChannel.ForAddress(_router.Address);
        // A request that is sent to the wrong shard fails with the whole test's patience used up, and with another reason.
        _client = new KvClient(new KvClientOptions { Endpoints = [_cluster.AddressOf(1)], Timeout = Eventually.Limit });
    }

    public async Task DisposeAsync()
    {
        await _client.DisposeAsync();
        _channel.Dispose();
        await _router.DisposeAsync();
        await _cluster.DisposeAsync();
    }

    /// <summary>
    /// The node tells by the position of its answer in which shard it has looked. That must be the shard of the key by which clients and routers send the
    /// request, who then name that shard. A method that is new in the contract fails until it is here.
    /// </summary>
    [Fact]
    public async Task EveryMethod_OfRandomKeys_IsServedInTheShardOfItsKeyAndTheSameEverywhere()
    {
        var random = Seeds.Next(output);
        var methods = Enum.GetValues<Method>().Where(static method => method != Method.Unspecified).ToList();
        Assert.Equal(methods, ByTheLibrary.Keys.Order());
        // The others are streams, which have tests of their own below. An exchange carries the calls of this one.
        Assert.Equal(
            (string[])["BulkLoad", "Exchange", "Scan", "Watch"],
            Kv.Descriptor.Methods.Select(static method => method.Name).Except(methods.Select(static method => method.ToString()))
                .Order(StringComparer.Ordinal));
        foreach (var method in methods)
        {
            var outcomes = new Dictionary<string, int>(StringComparer.Ordinal);
            // Few random writes are without any mistake, so a method has more rounds until one of its requests was served.
            for (var round = 0; round < 10 || (round < 1_000 && !outcomes.ContainsKey("done")); round++)
                Count(outcomes, await SameAsync(method, RandomRequest(random, method)));
            var told = $"{method}: {string.Join(", ", outcomes)}";
            output.WriteLine(told);
            Assert.True(outcomes.ContainsKey("done"), $"No request was served, so that nothing was compared. {told}");
        }
    }

    [Fact]
    public async Task ScanAndWatch_OfRandomRanges_BeginInTheSameShardEverywhere()
    {
        var random = Seeds.Next(output);
        foreach (var key in Keys)
            await _client.PutAsync(key, "v");
        var (node, router) = (_cluster.KvOf(1), new Kv.KvClient(_channel.Calls()));
        for (var round = 0; round < 40; round++)
        {
            var (start, end, prefix, reverse) = (RandomBound(random), RandomBound(random), RandomBound(random), random.Next(2) == 0);
            var range = KeyBounds.Of(start.Memory, end.Memory, prefix.Memory);
            if (range.IsEmpty)
                continue;
            var told = $"from '{start.ToStringUtf8()}' to '{end.ToStringUtf8()}' with prefix '{prefix.ToStringUtf8()}'";
            var all = Keys.Where(key => IsIn(range, Encoding.UTF8.GetBytes(key))).ToList();

            // A node serves the shard of the range's first key. The others go on from there.
            var watch = new WatchRequest { Start = start, End = end, Prefix = prefix, Initial = true };
            Same($"A node's watch {told}", OfShard(ShardOf(range.Lower.Span)), await WatchedAsync(node, watch));
            Same($"A router's watch {told}", all, await WatchedAsync(router, watch));
            Same($"The library's watch {told}", all, await WatchedAsync(
                new KvWatch { Start = start.Memory, End = end.Memory, Prefix = prefix.Memory, Initial = true }));

            // In reverse, of its last key.
            var ofFirst = OfShard(ShardOf(reverse ? KeyBounds.Before(range.Upper.Span) : range.Lower.Span));
            if (reverse)
            {
                ofFirst.Reverse();
                all.Reverse();
            }
            var scan = new ScanRequest { Start = start, End = end, Prefix = prefix, Reverse = reverse };
            Same($"A node's scan {told}", ofFirst, await ScannedAsync(node, scan));
            Same($"A router's scan {told}", all, await ScannedAsync(router, scan));
            var byTheLibrary = await _client.ScanAsync(new KvScan { Start = start.Memory, End = end.Memory, Prefix = prefix.Memory, Reverse = reverse })
                .ToListAsync();
            Same($"The library's scan {told}", all, byTheLibrary.ConvertAll(static entry => Encoding.UTF8.GetString(entry.Key.Span)));
            var list = new KvList { Start = start.Memory, End = end.Memory, Prefix = prefix.Memory, Reverse = reverse, Limit = 1 + random.Next(4) };
            Same($"The library's pages of {list.Limit} {told}", all, await ListedAsync(list));

            List<string> OfShard(uint shard) => [.. all.Where(key => ShardOf(Encoding.UTF8.GetBytes(key)) == shard)];
        }

        static void Same(string what, List<string> expected, List<string> actual) =>
            Assert.True(expected.SequenceEqual(actual), $"{what} has {string.Join(' ', actual)}, and not {string.Join(' ', expected)}");
    }

    // The keys of all pages, of which each but the last is full.
    private async Task<List<string>> ListedAsync(KvList list)
    {
        var keys = new List<string>();
        string? token = null;
        do
        {
            var page = await _client.ListAsync(list, token);
            token = page.NextToken;
            Assert.True(page.Entries.Count == list.Limit || token is null, $"A page of {list.Limit} has {page.Entries.Count} entries, and others follow.");
            keys.AddRange(page.Entries.Select(static entry => Encoding.UTF8.GetString(entry.Key.Span)));
        }
        while (token is not null);
        return keys;
    }

    [Fact]
    public async Task BulkLoad_OfKeysOfEachShard_WritesThemThereEverywhere()
    {
        foreach (var keys in new[] { Keys[..3], Keys[3..5], Keys[5..] })
        {
            var chunk = new BulkLoadRequest
            {
                Chunk = 1,
                Entries = { keys.Select(static key => new Entry { Key = ByteString.CopyFromUtf8(key), Value = ByteString.CopyFromUtf8("v") }) }
            };
            var shard = ShardOf(chunk.Entries[0].Key.Span);
            Assert.Equal((shard, shard), (await LoadedAsync(_cluster.KvOf(1), chunk), await LoadedAsync(new Kv.KvClient(_channel.Calls()), chunk)));
            await using var load = _client.BulkLoad(giveUpAfter: Eventually.Limit);
            foreach (var entry in chunk.Entries)
                await load.AddAsync(entry.Key.Memory, entry.Value.Memory);
            await load.FlushAsync();
        }
    }

    /// <summary>A request id belongs to one shard, so the router refuses a range of several with one, and the library did not send it without.</summary>
    [Fact]
    public async Task DeleteRange_OfSeveralShards_BehindTheRouter_RemovesAll()
    {
        await using var gateway = new KvClient(new KvClientOptions { Endpoints = [_router.Address], Gateway = true, Timeout = Eventually.Limit });
        foreach (var key in Keys)
            await gateway.PutAsync(key, "v");
        Assert.Equal((ulong)Keys.Length, (await gateway.DeleteRangeAsync(new KvRange { All = true })).Deleted);
        Assert.Equal(0, await gateway.CountAsync(default));
    }

    [Fact]
    public async Task TransactAndWrite_OfRandomKeys_HaveTheSameOutcomeEverywhere()
    {
        var random = Seeds.Next(output);
        var outcomes = new Dictionary<string, int>(StringComparer.Ordinal);
        for (var round = 0; round < 150; round++)
        {
            // Most within one shard, so that some succeed.
            var keys = random.Next(3) == 0 ? Keys : random.Next(2) == 0 ? Keys[..3] : Keys[3..5];
            var transact = new TransactRequest { Success = { Operations(random, keys) },
                Failure = { Operations(random, keys) }, Conditions = { Conditions(random, keys) } };
            var transaction = new KvTransaction();
            transaction.Message.MergeFrom(transact);
            await SameAsync(transact, kv => kv.TransactAsync(transact).ResponseAsync, () => _client.TransactAsync(transaction), outcomes);
            var write = new WriteRequest { WithResults = true, Operations = { Operations(random, keys) }, Conditions = { Conditions(random, keys) } };
            var written = new KvWrite();
            written.Message.MergeFrom(write);
            await SameAsync(write, kv => kv.WriteAsync(write).ResponseAsync, () => _client.WriteAsync(written), outcomes);
        }
        output.WriteLine(string.Join(", ", outcomes));
        Assert.Superset(new HashSet<string>(["done", "SHARDS_DIFFER", "BAD_REQUEST", "CONDITION_FAILED", "KEY_EMPTY"]), outcomes.Keys.ToHashSet());
    }

    [Fact]
    public async Task TransactAcrossShards_ByTheLibrary_IsRefusedAtOnce()
    {
        var transaction = new KvTransaction().If(KvCondition.Absent("z"u8.ToArray()));
        transaction.Then.Put("a"u8.ToArray(), "v"u8.ToArray());
        Assert.Equal("SHARDS_DIFFER", (await Assert.ThrowsAnyAsync<KvException>(async () => await _client.TransactAsync(transaction))).Reason);
    }

    [Fact]
    public async Task Transact_WithARangeThatBeginsWithItsShard_IsAcceptedByARouter()
    {
        var transact = new TransactRequest
        {
            Conditions = { new Condition { Range = new RangeCondition { End = ByteString.CopyFromUtf8("i"), Keys = 0 } } },
            Success = { new Operation { Get = new KeyOperation { Key = ByteString.CopyFromUtf8("h") } } },
        };
        Assert.True((await new Kv.KvClient(_channel.Calls()).TransactAsync(transact)).Succeeded);
    }

    /// <summary>Keys in all three shards, as sets, facets and members of one read.</summary>
    [Fact]
    public async Task SetIntersect_OfRandomKeys_HasTheSameOutcomeEverywhere()
    {
        var random = Seeds.Next(output);
        var outcomes = new Dictionary<string, int>(StringComparer.Ordinal);
        for (var round = 0; round < 60; round++)
        {
            var keys = random.Next(2) == 0 ? Keys : Keys[..2];
            var request = new SetIntersectRequest { Keys = { Chosen(random, keys, 1) }, FacetPrefixes = { Chosen(random, keys, 0) } };
            Count(outcomes, await SameAsync(request, kv => kv.SetIntersectAsync(request).ResponseAsync));
        }
        Assert.Superset(new HashSet<string>(["done", "SHARDS_DIFFER"]), outcomes.Keys.ToHashSet());
    }

    private async Task SameAsync<T, TLibrary>(
        IMessage request, Func<Kv.KvClient, Task<T>> call, Func<ValueTask<TLibrary>> byLibrary, Dictionary<string, int> outcomes)
    {
        var outcome = await SameAsync(request, call);
        Count(outcomes, outcome);
        var told = await OutcomeOfLibraryAsync(async () => await byLibrary());
        Assert.True(told == outcome, $"The library says {told}, and the others {outcome}, of {request}");
    }

    private async Task<string> SameAsync<T>(IMessage request, Func<Kv.KvClient, Task<T>> call)
    {
        var atTheNode = await OutcomeAsync(() => call(_cluster.KvOf(1)));
        var atTheRouter = await OutcomeAsync(() => call(new Kv.KvClient(_channel.Calls())));
        Assert.True(AreSame(atTheNode, atTheRouter), $"The node says {atTheNode}, and the router {atTheRouter}, of {request}");
        return atTheNode;
    }

    private static async Task<string> OutcomeAsync<T>(Func<Task<T>> call)
    {
        try
        {
            await call();
            return "done";
        }
        catch (RpcException failure)
        {
            return failure.GetRpcStatus()!.GetDetail<ErrorInfo>()!.Reason;
        }
    }

    private async Task<string> SameAsync(Method method, IMessage request)
    {
        var call = new Call { Id = 1, Method = method, Request = request.ToByteString() };
        var shard = ShardOf(RequestKeys.First(method, call.Request.Span));
        var reply = await AskAsync(_cluster.KvOf(1), call);
        var atTheNode = OutcomeOf(reply);
        Assert.True(reply.Code != 0 || PositionIn(method, reply).Shard == shard, $"Clients and routers send it to shard {shard}, and the node has another key "
            + $"of {method} {request}");
        var atTheRouter = OutcomeOf(await AskAsync(new Kv.KvClient(_channel.Calls()), call));
        // A node has all keys of one shard, and a router and the library ask several nodes.
        var isDivided = method == Method.GetMany && atTheNode == "SHARDS_DIFFER";
        Assert.True(AreSame(atTheNode, atTheRouter) || isDivided, $"The node says {atTheNode}, and the router {atTheRouter}, of {method} {request}");
        var told = await OutcomeOfLibraryAsync(() => ByTheLibrary[method](_client, request));
        Assert.True(told == (isDivided ? atTheRouter : atTheNode), $"The library says {told}, the node {atTheNode}, and the router {atTheRouter}, of {method} "
            + $"{request}");
        (call.Shard, call.Generation) = (shard, 1);
        var named = OutcomeOf(await AskAsync(_cluster.KvOf(1), call));
        Assert.True(named == atTheNode, $"The node says {named} if shard {shard} is named, and otherwise {atTheNode}, of {method} {request}");
        return atTheNode;
    }

    // A router that sees several shards need not look for what else is wrong.
    private static bool AreSame(string atTheNode, string atTheRouter) =>
        atTheNode == atTheRouter || (atTheRouter, atTheNode) is ("SHARDS_DIFFER", "BAD_REQUEST" or "KEY_EMPTY");

    private static async Task<Reply> AskAsync(Kv.KvClient kv, Call call)
    {
        using var exchange = kv.Exchange(deadline: DateTime.UtcNow + Eventually.Limit);
        await exchange.RequestStream.WriteAsync(new ExchangeRequest { Calls = { call } });
        await exchange.RequestStream.CompleteAsync();
        Assert.True(await exchange.ResponseStream.MoveNext(CancellationToken.None));
        return exchange.ResponseStream.Current.Replies.Single();
    }

    private static string OutcomeOf(Reply reply) => reply.Code == 0 ? "done" : Google.Rpc.Status.Parser.ParseFrom(reply.Status).GetDetail<ErrorInfo>()!.Reason;

    private static async Task<string> OutcomeOfLibraryAsync(Func<Task> call)
    {
        try
        {
            await call();
            return "done";
        }
        catch (KvException failure)
        {
            return failure.Reason;
        }
    }

    private static Position PositionIn(Method method, Reply reply)
    {
        var answer = Kv.Descriptor.FindMethodByName(method.ToString()).OutputType.Parser.ParseFrom(reply.Response);
        return answer is GetManyResponse many ? many.Entries[0].Position : (Position)answer.Descriptor.FindFieldByName("position").Accessor.GetValue(answer);
    }

    private static async Task<List<string>> WatchedAsync(Kv.KvClient kv, WatchRequest request)
    {
        using var watch = kv.Watch(request, deadline: DateTime.UtcNow + Eventually.Limit);
        var keys = new List<string>();
        do
        {
            Assert.True(await watch.ResponseStream.MoveNext(CancellationToken.None));
            keys.AddRange(watch.ResponseStream.Current.Events.Select(static one => one.Key.ToStringUtf8()));
        }
        while (!watch.ResponseStream.Current.InitialComplete);
        keys.Sort(StringComparer.Ordinal);
        return keys;
    }

    private async Task<List<string>> WatchedAsync(KvWatch watch)
    {
        using var patience = new CancellationTokenSource(Eventually.Limit);
        var keys = new List<string>();
        await foreach (var message in _client.WatchAsync(watch, patience.Token))
        {
            keys.AddRange(message.Events.Select(static one => Encoding.UTF8.GetString(one.Key.Span)));
            if (message.IsInitialComplete)
                break;
        }
        keys.Sort(StringComparer.Ordinal);
        return keys;
    }

    private static async Task<List<string>> ScannedAsync(Kv.KvClient kv, ScanRequest request)
    {
        using var scan = kv.Scan(request, deadline: DateTime.UtcNow + Eventually.Limit);
        var keys = new List<string>();
        while (await scan.ResponseStream.MoveNext(CancellationToken.None))
            keys.AddRange(scan.ResponseStream.Current.Entries.Select(static entry => entry.Key.ToStringUtf8()));
        return keys;
    }

    private static async Task<uint> LoadedAsync(Kv.KvClient kv, BulkLoadRequest chunk)
    {
        using var load = kv.BulkLoad(deadline: DateTime.UtcNow + Eventually.Limit);
        await load.RequestStream.WriteAsync(chunk);
        await load.RequestStream.CompleteAsync();
        Assert.True(await load.ResponseStream.MoveNext(CancellationToken.None));
        return load.ResponseStream.Current.Position.Shard;
    }

    private static uint ShardOf(ReadOnlySpan<byte> key) => key.SequenceCompareTo("h"u8) < 0 ? 0u : key.SequenceCompareTo("t"u8) < 0 ? 1u : 2u;

    private static bool IsIn(KeyBounds range, ReadOnlySpan<byte> key) =>
        key.SequenceCompareTo(range.Lower.Span) >= 0 && (range.Upper.IsEmpty || key.SequenceCompareTo(range.Upper.Span) < 0);

    private static Func<KvClient, IMessage, Task> Of<T>(Func<KvClient, T, Task> call)
        where T : IMessage => (client, request) => call(client, (T)request);

    // By the names of its fields, which mean the same in all requests. The others stay empty.
    private static IMessage RandomRequest(Random random, Method method)
    {
        var type = Kv.Descriptor.FindMethodByName(method.ToString()).InputType;
        var request = type.Parser.ParseFrom(ByteString.Empty);
        // Most within one shard, so that some succeed.
        var keys = random.Next(3) == 0 ? Keys : random.Next(2) == 0 ? Keys[..3] : Keys[3..5];
        foreach (var field in type.Fields.InDeclarationOrder())
        {
            if (field.IsRepeated)
            {
                foreach (var value in RandomValues(random, field, keys))
                    ((IList)field.Accessor.GetValue(request)).Add(value);
            }
            else if (RandomValue(random, field, keys) is { } value)
            {
                field.Accessor.SetValue(request, value);
            }
        }
        // The library has a call of its own for each of the two.
        if (request is SetRemoveRequest { All: true } remove)
            remove.Members.Clear();
        return request;
    }

    private static object? RandomValue(Random random, FieldDescriptor field, string[] keys) => field.Name switch
    {
        "key" => KeyOf(random, keys),
        "start" or "end" or "prefix" or "within" => RandomBound(random),
        "reverse" or "all" => random.Next(2) == 0,
        "nearest" => (Nearest)random.Next((int)Nearest.Higher + 1),
        // A number, so that it can be incremented.
        "value" => ByteString.CopyFromUtf8("1"),
        "session" => SomeSession,
        _ => null,
    };

    private static IEnumerable<object> RandomValues(Random random, FieldDescriptor field, string[] keys) => field.Name switch
    {
        "keys" or "facet_prefixes" => Chosen(random, keys, 1),
        "operations" or "success" or "failure" => Operations(random, keys),
        "members" => [ByteString.CopyFromUtf8("m")],
        "sessions" => [SomeSession],
        _ => [],
    };

    private static ByteString RandomBound(Random random) => random.Next(2) == 0 ? ByteString.Empty : ByteString.CopyFromUtf8(Keys[random.Next(Keys.Length)]);

    private static void Count(Dictionary<string, int> outcomes, string outcome) => outcomes[outcome] = outcomes.GetValueOrDefault(outcome) + 1;

    private static IEnumerable<ByteString> Chosen(Random random, string[] keys, int least) =>
        [.. Enumerable.Range(0, random.Next(least, 3)).Select(_ => ByteString.CopyFromUtf8(keys[random.Next(keys.Length)]))];

    // They change nothing that a condition sees, so that the same request has the same outcome three times.
    private static Operation[] Operations(Random random, string[] keys) =>
        [.. Enumerable.Range(0, random.Next(4)).Select(_ => OperationOn(random, KeyOf(random, keys), KeyOf(random, keys)))];

    private static Operation OperationOn(Random random, ByteString key, ByteString other) => random.Next(6) switch
    {
        0 => new Operation { Delete = new DeleteOperation { Key = key } },
        1 => new Operation
        {
            DeleteRange = new RangeOperation { Start = key, End = random.Next(2) == 0 ? other : ByteString.CopyFromUtf8(key.ToStringUtf8() + "0") }
        },
        2 => new Operation { Get = new KeyOperation { Key = key } },
        3 => new Operation { Scan = new RangeOperation { Start = key, End = random.Next(2) == 0 ? other : ByteString.Empty } },
        4 => new Operation { SetGet = new SetOperation { Key = key } },
        _ => new Operation { SetRemove = new SetOperation { Key = key, Member = ByteString.CopyFromUtf8("m") } },
    };

    private static Condition[] Conditions(Random random, string[] keys) =>
        [.. Enumerable.Range(0, random.Next(4)).Select(_ => ConditionOn(random, KeyOf(random, keys)))];

    private static Condition ConditionOn(Random random, ByteString key)
    {
        var condition = random.Next(4) switch
        {
            0 => new Condition { Range = new RangeCondition { Keys = 0, End = ByteString.CopyFromUtf8("gzz") } },
            1 => new Condition { Range = new RangeCondition { Keys = (uint)random.Next(2) } },
            _ => new Condition { Exists = random.Next(3) == 0 },
        };
        if (random.Next(4) > 0)
            condition.Key = key;
        return condition;
    }

    private static ByteString KeyOf(Random random, string[] keys) =>
        random.Next(25) == 0 ? ByteString.Empty : ByteString.CopyFromUtf8(keys[random.Next(keys.Length)]);
}
