using Google.Protobuf;
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

namespace KvCluster.Tests.Router;

/// <summary>
/// The same request by the library at the nodes, by a router and at the node itself: each has the same outcome, at once. The library took the condition's key
/// and the node the first operation's, so a Transact across shards took its whole time and then said that there was no leader; and a router refused a range
/// condition that nodes accept.
/// </summary>
public sealed class SameKeysTests(ITestOutputHelper output) : IAsyncLifetime
{
    private static readonly string[] Keys = ["a", "b", "gz", "h", "m", "x", "z"];

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
            new RouterOptions { Listen = "http://127.0.0.1:0", Seeds = [_cluster.AddressOf(1)], Timeout = Eventually.Limit }, new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None);
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
            var transact = new TransactRequest { Success = { Operations(random, keys) }, Failure = { Operations(random, keys) }, Conditions = { Conditions(random, keys) } };
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
        Assert.True((await new Kv.KvClient(_channel).TransactAsync(transact)).Succeeded);
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

    private async Task SameAsync<T, TLibrary>(IMessage request, Func<Kv.KvClient, Task<T>> call, Func<ValueTask<TLibrary>> byLibrary, Dictionary<string, int> outcomes)
    {
        var outcome = await SameAsync(request, call);
        Count(outcomes, outcome);
        string told;
        try
        {
            await byLibrary();
            told = "done";
        }
        catch (KvException failure)
        {
            told = failure.Reason;
        }
        Assert.True(told == outcome, $"The library says {told}, and the others {outcome}, of {request}");
    }

    private async Task<string> SameAsync<T>(IMessage request, Func<Kv.KvClient, Task<T>> call)
    {
        var atTheNode = await OutcomeAsync(() => call(_cluster.KvOf(1)));
        var atTheRouter = await OutcomeAsync(() => call(new Kv.KvClient(_channel)));
        // A router that sees several shards need not look for what else is wrong.
        Assert.True(atTheNode == atTheRouter || (atTheRouter, atTheNode) is ("SHARDS_DIFFER", "BAD_REQUEST" or "KEY_EMPTY"), $"The node says {atTheNode}, and the router {atTheRouter}, of {request}");
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

    private static void Count(Dictionary<string, int> outcomes, string outcome) => outcomes[outcome] = outcomes.GetValueOrDefault(outcome) + 1;

    private static IEnumerable<ByteString> Chosen(Random random, string[] keys, int least) =>
        [.. Enumerable.Range(0, random.Next(least, 3)).Select(_ => ByteString.CopyFromUtf8(keys[random.Next(keys.Length)]))];

    // They change nothing that a condition sees, so that the same request has the same outcome three times.
    private static Operation[] Operations(Random random, string[] keys) => [.. Enumerable.Range(0, random.Next(4)).Select(_ => OperationOn(random, KeyOf(random, keys), KeyOf(random, keys)))];

    private static Operation OperationOn(Random random, ByteString key, ByteString other) => random.Next(6) switch
    {
        0 => new Operation { Delete = new DeleteOperation { Key = key } },
        1 => new Operation { DeleteRange = new RangeOperation { Start = key, End = random.Next(2) == 0 ? other : ByteString.CopyFromUtf8(key.ToStringUtf8() + "0") } },
        2 => new Operation { Get = new KeyOperation { Key = key } },
        3 => new Operation { Scan = new RangeOperation { Start = key, End = random.Next(2) == 0 ? other : ByteString.Empty } },
        4 => new Operation { SetGet = new SetOperation { Key = key } },
        _ => new Operation { SetRemove = new SetOperation { Key = key, Member = ByteString.CopyFromUtf8("m") } },
    };

    private static Condition[] Conditions(Random random, string[] keys) => [.. Enumerable.Range(0, random.Next(4)).Select(_ => ConditionOn(random, KeyOf(random, keys)))];

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

    private static ByteString KeyOf(Random random, string[] keys) => random.Next(25) == 0 ? ByteString.Empty : ByteString.CopyFromUtf8(keys[random.Next(keys.Length)]);
}
