using System.Reflection;
using System.Text;
using Grpc.Core;
using KvCluster.Client;
using Xunit.Abstractions;

namespace KvCluster.Tests.Client;

/// <summary>The library's calls against nodes that serve a dictionary over several shards.</summary>
public sealed class KvClientTests(ITestOutputHelper output)
{
    [Fact]
    public async Task PutGetDelete_OfOneKey_ReadTheLastWrite()
    {
        await using var cluster = await FakeCluster.StartAsync(2, "m");
        await using var client = cluster.Connect();
        Assert.False((await client.GetAsync("z")).Found);
        var put = await client.PutAsync("z", "value");
        Assert.Equal(2u, put.Position.Shard);
        var read = await client.GetAsync("z");
        Assert.True(read.Found);
        Assert.Equal(put.Etag, read.Etag);
        Assert.True((await client.DeleteAsync("z")).Existed);
        Assert.False((await client.DeleteAsync("z")).Existed);
    }

    [Fact]
    public async Task Put_WithAConditionThatFails_NamesItAndTheNewestEtag()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        var put = await client.PutAsync("a", "1", KvCondition.Absent());
        var failure = await Assert.ThrowsAsync<KvConditionFailedException>(() => client.PutAsync("a", "2", KvCondition.Absent()).AsTask());
        Assert.Equal(0, failure.ConditionIndex);
        Assert.Equal(new ShardPosition(1, new KvCluster.Etag(1, 7)), failure.Position);
        Assert.Equal(ChangeOutcome.NotApplied, failure.Outcome);
        await client.PutAsync("a", "2", KvCondition.EtagEquals(put.Etag));
        await Assert.ThrowsAsync<KvConditionFailedException>(() => client.PutAsync("a", "3", KvCondition.EtagEquals(put.Etag)).AsTask());
        await client.PutAsync("a", "3", KvCondition.ValueEquals("2"u8.ToArray()));
        await client.DeleteAsync("a", KvCondition.Exists());
    }

    [Fact]
    public async Task Write_OfSeveralKeys_IsAllOrNothing()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        await client.PutAsync("a", "1");
        await client.WriteAsync(new KvWrite().If(KvCondition.Exists("a"u8.ToArray())).Put("b"u8.ToArray(), "2"u8.ToArray()).Delete("a"u8.ToArray()));
        Assert.False((await client.GetAsync("a")).Found);
        var refused = new KvWrite().If(KvCondition.Exists("a"u8.ToArray())).Put("c"u8.ToArray(), "3"u8.ToArray());
        await Assert.ThrowsAsync<KvConditionFailedException>(() => client.WriteAsync(refused).AsTask());
        Assert.False((await client.GetAsync("c")).Found);
    }

    [Fact]
    public async Task Write_OfKeysOfDifferentShards_IsRefused()
    {
        await using var cluster = await FakeCluster.StartAsync(1, "m");
        await using var client = cluster.Connect();
        var write = new KvWrite().Put("a"u8.ToArray(), default).Put("z"u8.ToArray(), default);
        Assert.Equal("SHARDS_DIFFER", (await Assert.ThrowsAsync<KvShardsDifferException>(() => client.WriteAsync(write).AsTask())).Reason);
    }

    /// <summary>Programs had to encode and decode every text themselves.</summary>
    [Fact]
    public async Task KeysAndValues_AreTextNumbersAndParts_WithoutConversions()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        await client.WriteAsync(new KvWrite().If(KvCondition.Absent("orders/1")).Put("orders/1", "two pears").Put("visits", KvValue.FromInt64(17)));
        var put = await client.PutAsync(KvKey.Of("orders", 2026, 11), "of November", KvCondition.Absent());
        Assert.Equal("two pears", (await client.GetAsync("orders/1")).Value.ToUtf8String());
        Assert.Equal(17, (await client.GetAsync("visits", KvReadMode.Leader)).Value.ToInt64());
        var entry = Assert.Single(await client.ScanAsync(new KvScan { Prefix = KvKey.Of("orders", 2026) }).ToListAsync());
        Assert.Equal((KvKey.Of("orders", 2026, 11), (KvValue)"of November"), (entry.Key, entry.Value));
        Assert.Equal((entry.Key, entry.Etag), (put.Key, put.Etag));
        Assert.Equal("orders/1", Assert.Single(await client.ScanAsync(new KvScan { Prefix = "orders/" }).ToListAsync()).Key.ToUtf8String());
    }

    [Fact]
    public async Task GetMany_OverShards_AnswersInTheOrderOfTheRequest()
    {
        await using var cluster = await FakeCluster.StartAsync(3, "g", "p");
        await using var client = cluster.Connect();
        foreach (var key in (string[])["a", "h", "q"])
            await client.PutAsync(key, $"of {key}");
        string[] keys = ["q", "nowhere", "a", "h", "a"];
        var results = await client.GetManyAsync([.. keys.Select(key => (KvKey)key)]);
        Assert.Equal(["of q", "", "of a", "of h", "of a"], results.Select(result => Encoding.UTF8.GetString(result.Value.Span)));
        Assert.Equal([true, false, true, true, true], results.Select(result => result.Found));
    }

    /// <summary>A shard was split after the client got its map. The node says that the keys differ, and the client groups them by the new routes.</summary>
    [Theory]
    [InlineData(true)]
    [InlineData(false)]
    public async Task GetMany_AfterASplit_IsGroupedAgain(bool isHinted)
    {
        await using var cluster = await FakeCluster.StartAsync(2);
        await using var client = cluster.Connect();
        await client.PutAsync("a", "of a");
        await client.PutAsync("z", "of z");
        cluster.Split("m", leader: 2);
        var refused = 0;
        cluster.Nodes[0].Script = call =>
        {
            if (isHinted || call.Method != V1.Method.GetMany || V1.GetManyRequest.Parser.ParseFrom(call.Request).Keys.Count == 1)
                return Task.FromResult<V1.Reply?>(null);
            if (++refused == 1)
                cluster.Announce();
            return Task.FromResult<V1.Reply?>(FakeNode.Refuse(call, StatusCode.FailedPrecondition, "SHARDS_DIFFER"));
        };
        var results = await client.GetManyAsync([.. ((string[])["z", "a"]).Select(key => (KvKey)key)]);
        Assert.Equal(["of z", "of a"], results.Select(result => Encoding.UTF8.GetString(result.Value.Span)));
        Assert.Contains(cluster.Nodes[1].Calls, call => call.Method == V1.Method.GetMany);
    }

    [Fact]
    public async Task Calls_OfManyCallers_GetTheirOwnAnswersAndShareMessages()
    {
        const int Callers = 2_000;
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        await Task.WhenAll(Enumerable.Range(0, Callers).Select(number => client.PutAsync($"key{number}", $"value{number}").AsTask()));
        var random = Seeds.Next(output);
        var delays = Enumerable.Range(0, 16).Select(_ => random.Next(10)).ToArray();
        cluster.Nodes[0].Script = async call =>
        {
            // Answers leave in a different order than the calls arrived.
            await Task.Delay(delays[call.Id / 65536 % 16]);
            return null;
        };
        var results = await Task.WhenAll(Enumerable.Range(0, Callers).Select(number => client.GetAsync($"key{number}").AsTask()));
        for (var number = 0; number < Callers; number++)
            Assert.Equal($"value{number}", Encoding.UTF8.GetString(results[number].Value.Span));
        // How many calls share a message depends on how fast each is sent; all those begun before the connection is open do, however fast the machine is.
        Assert.True(cluster.Nodes[0].Messages < 2 * Callers, $"{cluster.Nodes[0].Messages} messages for {2 * Callers} calls: calls did not share messages.");
    }

    [Fact]
    public async Task Scan_OfRandomRanges_EqualsALinearScan()
    {
        var random = Seeds.Next(output);
        await using var cluster = await FakeCluster.StartAsync(3, "b/", "b/m", "d");
        await using var client = cluster.Connect();
        var keys = new SortedSet<string>(StringComparer.Ordinal);
        foreach (var first in "abcde")
        {
            for (var number = 0; number < 12; number++)
                keys.Add($"{first}/{(char)('a' + random.Next(26))}{random.Next(10)}");
        }
        foreach (var key in keys)
            await client.PutAsync(key, $"of {key}");
        string[] bounds = ["", "a/", "b/", "b/k", "b/m", "c/q", "d", "e/z"];
        for (var round = 0; round < 60; round++)
        {
            var scan = new KvScan
            {
                Prefix = Encoding.UTF8.GetBytes(random.Next(2) == 0 ? "" : bounds[random.Next(1, 4)]),
                Start = Encoding.UTF8.GetBytes(bounds[random.Next(bounds.Length)]),
                End = Encoding.UTF8.GetBytes(bounds[random.Next(bounds.Length)]),
                Reverse = random.Next(2) == 0,
                Limit = (ulong)random.Next(0, 12),
                KeysOnly = random.Next(2) == 0,
            };
            var expected = Linear(keys, scan).ToArray();
            var found = new List<string>();
            await foreach (var entry in client.ScanAsync(scan))
            {
                found.Add(Encoding.UTF8.GetString(entry.Key.Span));
                Assert.Equal(scan.KeysOnly ? "" : $"of {found[^1]}", Encoding.UTF8.GetString(entry.Value.Span));
            }
            Assert.Equal(expected, found);
        }
        Assert.Equal(keys.Count(key => key.StartsWith("b/", StringComparison.Ordinal)), await client.CountAsync("b/"u8.ToArray()));
    }

    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task Scan_OverAStreamThatBreaks_ContinuesAfterTheLastKey(bool reverse)
    {
        await using var cluster = await FakeCluster.StartAsync(2, "key30");
        await using var client = cluster.Connect();
        var keys = Enumerable.Range(10, 50).Select(number => $"key{number}").ToArray();
        foreach (var key in keys)
            await client.PutAsync(key, "value");
        var pages = 0;
        foreach (var node in cluster.Nodes)
        {
            node.ScanScript = _ =>
            {
                // Data in flight is lost with the connection, so the stream must not break every time.
                if (++pages is 3 or 9 or 15)
                    node.Abort();
            };
        }
        var found = new List<string>();
        await foreach (var entry in client.ScanAsync(new KvScan { Reverse = reverse }))
            found.Add(Encoding.UTF8.GetString(entry.Key.Span));
        Assert.Equal(reverse ? keys.Reverse() : keys, found);
    }

    [Fact]
    public async Task Status_OfADeadNode_IsItsError()
    {
        await using var cluster = await FakeCluster.StartAsync(3);
        await using var client = cluster.Connect();
        await client.PutAsync("a", "1");
        await cluster.Nodes[2].DisposeAsync();
        // The others have an error too if they do not answer within seconds, as where the machine stalls.
        await Eventually.TrueAsync(async () =>
        {
            var status = await client.Admin.GetStatusAsync(digest: true);
            Assert.Equal("fake", status.Cluster);
            Assert.Equal([1u, 2u, 3u], status.Nodes.Select(node => node.Node));
            Assert.NotEmpty(status.Nodes[2].Error);
            if (status.Nodes.Count(node => node.Error.Length > 0) > 1)
                return false;
            Assert.Equal(3, status.Nodes[0].Replicas[0].Digest.Length);
            return true;
        }, "only the dead node has an error");
        await Eventually.TrueAsync(async () =>
        {
            var checkpoints = await client.Admin.CheckpointAsync();
            Assert.NotEmpty(checkpoints[2].Error);
            return checkpoints[0].DataBytes == 8192;
        }, "the checkpoints of the others are told");
    }

    [Fact]
    public async Task Gateway_SendsEverythingToTheEndpoint()
    {
        await using var cluster = await FakeCluster.StartAsync(2, "m");
        cluster.Lead(2, node: 1);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.Endpoint], Gateway = true, Timeout = Eventually.Limit });
        await client.PutAsync("a", "1");
        await client.PutAsync("z", "1");
        Assert.Equal(2, cluster.Nodes[0].Calls.Count);
        Assert.Empty(cluster.Nodes[1].Calls);
    }

    [Theory]
    [InlineData("")]
    [InlineData("127.0.0.1:7400")]
    [InlineData("ftp://host")]
    public void Client_WithAMalformedEndpoint_IsRefused(string endpoint) => Assert.Throws<ArgumentException>(() => new KvClient(endpoint));

    /// <summary>A user's own gRPC or protobuf packages must never conflict with ours.</summary>
    [Fact]
    public void PublicApi_NamesNoGeneratedOrGrpcType()
    {
        var types = typeof(KvClient).Assembly.GetExportedTypes();
        Assert.Contains(typeof(KvClient), types);
        var foreign = types.SelectMany(type => type.GetMembers(BindingFlags.Public | BindingFlags.Instance | BindingFlags.Static | BindingFlags.DeclaredOnly))
            .SelectMany(TypesOf)
            .Where(type => type.Namespace is { } name
                && new[] { "Grpc", "Google", "Polly", "KvCluster.V1" }.Any(prefix => name.StartsWith(prefix, StringComparison.Ordinal)));
        Assert.Empty(foreign);
    }

    private static IEnumerable<Type> TypesOf(MemberInfo member) => (member switch
    {
        MethodInfo method => method.GetParameters().Select(parameter => parameter.ParameterType).Append(method.ReturnType),
        ConstructorInfo constructor => constructor.GetParameters().Select(parameter => parameter.ParameterType),
        PropertyInfo property => [property.PropertyType],
        FieldInfo field => [field.FieldType],
        _ => [],
    }).SelectMany(type => type.GetGenericArguments().Append(type));

    // A slow reader's scan kept the memory of everything written meanwhile. Now the node ends the scan. Only a caller that asked for one snapshot is told.
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task Scan_SnapshotTooOld_ContinuesAfterTheLastKeyUnlessItWantsOneSnapshot(bool oneSnapshot)
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        var keys = Enumerable.Range(0, 20).Select(number => $"key-{number:D2}").ToArray();
        foreach (var key in keys)
            await client.PutAsync(key, "value");
        var pages = 0;
        cluster.Nodes[0].ScanScript = _ =>
        {
            if (++pages % 3 == 0)
                throw KvCluster.Client.Transport.CallStatus.Create(StatusCode.Aborted, "SNAPSHOT_TOO_OLD", "The scan was read too slowly.", "no")
                    .ToRpcException();
        };
        var seen = new List<string>();
        async Task ScanAsync()
        {
            await foreach (var entry in client.ScanAsync(new KvScan { OneSnapshot = oneSnapshot }))
                seen.Add(Encoding.UTF8.GetString(entry.Key.Span));
        }
        if (oneSnapshot)
        {
            Assert.Equal("SNAPSHOT_TOO_OLD", (await Assert.ThrowsAsync<KvSnapshotTooOldException>(ScanAsync)).Reason);
            Assert.Equal(keys[..6], seen);
            return;
        }
        await ScanAsync();
        Assert.Equal(keys, seen);
        Assert.True(cluster.Nodes[0].Scans.Count > 2);
    }

    private static IEnumerable<string> Linear(IEnumerable<string> keys, KvScan scan)
    {
        var (prefix, start, end) =
            (Encoding.UTF8.GetString(scan.Prefix.Span), Encoding.UTF8.GetString(scan.Start.Span), Encoding.UTF8.GetString(scan.End.Span));
        var range = keys.Where(key => key.StartsWith(prefix, StringComparison.Ordinal)
            && string.CompareOrdinal(key, start) >= 0 && (end.Length == 0 || string.CompareOrdinal(key, end) < 0));
        var ordered = scan.Reverse ? range.Reverse() : range;
        return scan.Limit == 0 ? ordered : ordered.Take((int)scan.Limit);
    }
}
