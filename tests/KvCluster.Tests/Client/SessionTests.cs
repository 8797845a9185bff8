using System.Diagnostics;
using Grpc.Core;
using KvCluster.Client;
using KvCluster.Client.Sessions;
using KvCluster.V1;

namespace KvCluster.Tests.Client;

/// <summary>Changes whose outcome becomes unknown: they are repeated under their id until it is known, and applied once.</summary>
public sealed class SessionTests
{
    [Fact]
    public async Task Put_AnswerLost_IsAnsweredWithItsFirstResult()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        LoseAnswers(cluster.Nodes[0], count: 2);
        var put = await client.PutAsync("a", "1");
        Assert.Equal(3, cluster.Nodes[0].Calls.Count);
        Assert.Equal(1, cluster.Applied["a"]);
        Assert.Equal((await client.GetAsync("a")).Etag, put.Etag);
    }

    [Fact]
    public async Task Put_IfAbsentWithLostAnswer_Succeeds()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        LoseAnswers(cluster.Nodes[0], count: 1);
        await client.PutAsync("a", "1", KvCondition.Absent());
        LoseAnswers(cluster.Nodes[0], count: 1);
        await Assert.ThrowsAsync<KvConditionFailedException>(() => client.PutAsync("a", "1", KvCondition.Absent()).AsTask());
        LoseAnswers(cluster.Nodes[0], count: 1);
        Assert.True((await client.DeleteAsync("a")).Existed);
        LoseAnswers(cluster.Nodes[0], count: 1);
        await client.WriteAsync(new KvWrite().Put("a"u8.ToArray(), "2"u8.ToArray()).Put("b"u8.ToArray(), "2"u8.ToArray()));
        Assert.Equal((3, 1), (cluster.Applied["a"], cluster.Applied["b"]));
    }

    [Fact]
    public async Task Put_LeaderDiedAfterTakingIt_IsSettledByTheNextLeader()
    {
        await using var cluster = await FakeCluster.StartAsync(3);
        await using var client = cluster.Connect();
        cluster.Nodes[0].Script = call =>
        {
            cluster.Nodes[0].Serve(call);
            cluster.Lead(1, node: 3);
            cluster.Nodes[0].Abort();
            return Task.FromResult<Reply?>(FakeNode.Silence);
        };
        await client.PutAsync("a", "1");
        Assert.Equal(1, cluster.Applied["a"]);
        Assert.Single(cluster.Nodes[2].CallsAsLeader);
    }

    /// <summary>
    /// A program that made a client for each of its calls filled a shard with 4,096 sessions, and others' changes waited for their deadlines.
    /// </summary>
    [Fact]
    public async Task Dispose_EndsTheSessionsInAllShards()
    {
        await using var cluster = await FakeCluster.StartAsync(2, "g", "p");
        var ended = 0;
        await Eventually.TrueAsync(async () =>
        {
            cluster.Results.Clear();
            await using var client = cluster.Connect();
            foreach (var key in (string[])["a", "h", "q"])
                await client.PutAsync(key, "1");
            Assert.Equal(3, cluster.Results.Count);
            var began = Stopwatch.GetTimestamp();
            await client.DisposeAsync();
            // A client waits no longer than this for its nodes, and may then leave its sessions to them.
            if (Stopwatch.GetElapsedTime(began) >= TimeSpan.FromSeconds(1))
                return false;
            Assert.Empty(cluster.Results);
            return ++ended == 20;
        }, "twenty clients have ended their sessions before they stopped waiting");
    }

    [Fact]
    public async Task Dispose_WhileNoNodeAnswers_EndsAllTheSame()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        var client = cluster.Connect();
        await client.PutAsync("a", "1");
        await cluster.Nodes[0].DisposeAsync();
        await client.DisposeAsync().AsTask().WaitAsync(Eventually.Limit);
        Assert.Single(cluster.Results);
    }

    [Fact]
    public async Task Put_OfAnEndedSession_IsRepeatedInANewSession()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        await client.PutAsync("a", "1");
        cluster.Results.Clear();
        await Task.WhenAll(Enumerable.Range(0, 100).Select(number => client.PutAsync($"k{number}", "1").AsTask()));
        Assert.All(Enumerable.Range(0, 100), number => Assert.Equal(1, cluster.Applied[$"k{number}"]));
        Assert.Single(cluster.Results);
    }

    [Fact]
    public async Task Put_OfASessionThatEndedAfterAnUnknownAttempt_IsUnknownAndNotRepeated()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        cluster.Nodes[0].Script = call =>
        {
            if (cluster.Nodes[0].Calls.Count > 1)
                return Task.FromResult<Reply?>(null);
            cluster.Nodes[0].Serve(call);
            cluster.Results.Clear();
            cluster.Nodes[0].Abort();
            return Task.FromResult<Reply?>(FakeNode.Silence);
        };
        await Assert.ThrowsAsync<KvOutcomeUnknownException>(() => client.PutAsync("a", "1").AsTask());
        Assert.Equal((1, 2), (cluster.Applied["a"], cluster.Nodes[0].Calls.Count));
        await client.PutAsync("a", "2");
        Assert.Equal(2, cluster.Applied["a"]);
    }

    [Theory]
    [InlineData("BUSY", 14, "no")]
    [InlineData("DISK_FULL", 8, "no")]
    [InlineData("OUTCOME_UNKNOWN", 14, "unknown")]
    public async Task Put_RefusedAfterAnUnknownAttempt_StaysUnknown(string reason, int code, string applied)
    {
        await Eventually.LongEnoughAsync(TimeSpan.FromMilliseconds(700), async time =>
        {
            await using var cluster = await FakeCluster.StartAsync(1);
            await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.Endpoint], Timeout = time });
            cluster.Nodes[0].Script = call =>
            {
                if (cluster.Nodes[0].Calls.Count > 1)
                    return Task.FromResult<Reply?>(FakeNode.Refuse(call, (StatusCode)code, reason, applied));
                cluster.Nodes[0].Abort();
                return Task.FromResult<Reply?>(FakeNode.Silence);
            };
            var failure = await Assert.ThrowsAnyAsync<KvException>(() => client.PutAsync("a", "1").AsTask());
            if (cluster.Nodes[0].Calls.Count < 2)
                return false;
            Assert.IsType<KvOutcomeUnknownException>(failure);
            return true;
        });
    }

    [Fact]
    public async Task Puts_OfManyCallers_ShareASessionAndCloseSettledSequences()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        await Task.WhenAll(Enumerable.Range(0, 50).Select(async caller =>
        {
            for (var number = 0; number < 20; number++)
                await client.PutAsync($"k{caller}", $"{number}");
        }));
        var ids = cluster.Nodes[0].Calls.Select(call => PutRequest.Parser.ParseFrom(call.Request).RequestId).ToArray();
        Assert.Single(cluster.Results);
        Assert.Equal(1_000, ids.Select(id => id.Sequence).Distinct().Count());
        await client.PutAsync("last", "1");
        var last = PutRequest.Parser.ParseFrom(cluster.Nodes[0].Calls.Last().Request).RequestId;
        Assert.Equal((1_001ul, 1_001ul), (last.Sequence, last.LowestOpen));
    }

    [Fact]
    public async Task Puts_BehindOneThatStaysOpen_ContinueInAnotherSession()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        var slow = new TaskCompletionSource();
        cluster.Nodes[0].Script = async call =>
        {
            if (PutRequest.Parser.ParseFrom(call.Request).Key.Equals(Google.Protobuf.ByteString.CopyFromUtf8("slow")))
                await slow.Task;
            return null;
        };
        var open = client.PutAsync("slow", "1").AsTask();
        await Eventually.TrueAsync(() => cluster.Nodes[0].Calls.Count == 1, "the slow put arrives");
        foreach (var numbers in Enumerable.Range(0, ClientSession.OpenMax + 100).Chunk(500))
            await Task.WhenAll(numbers.Select(number => client.PutAsync($"k{number}", "1").AsTask()));
        Assert.Equal(2, cluster.Results.Count);
        Assert.False(open.IsCompleted);
        slow.SetResult();
        await open;
    }

    [Fact]
    public void Session_SettledInAnyOrder_TracksTheLowestOpen()
    {
        var session = new ClientSession(1, new(new(1), 0), "k"u8.ToArray());
        for (var number = 0; number < ClientSession.OpenMax; number++)
            Assert.True(session.TryTake(out _, out var lowest) && lowest == 1);
        Assert.False(session.TryTake(out _, out _));
        Assert.False(session.Settle(2));
        Assert.False(session.HasRoom);
        Assert.True(session.Settle(1));
        Assert.True(session.TryTake(out var next, out var lowestOpen));
        Assert.Equal((ClientSession.OpenMax + 1ul, 3ul), (next, lowestOpen));
    }

    /// <summary>Makes a node execute calls and break the stream before it answers.</summary>
    private static void LoseAnswers(FakeNode node, int count) => node.Script = call =>
    {
        if (Interlocked.Decrement(ref count) < 0)
            return Task.FromResult<Reply?>(null);
        node.Serve(call);
        node.Abort();
        return Task.FromResult<Reply?>(FakeNode.Silence);
    };
}
