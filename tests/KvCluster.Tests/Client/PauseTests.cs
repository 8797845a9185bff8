using System.Net;
using System.Net.Sockets;
using System.Text;
using Grpc.Core;
using KvCluster.Client;
using KvCluster.Client.Runtime;
using KvCluster.Client.Transport;
using KvCluster.Router;
using KvCluster.ServiceDefaults.Admin;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Client;

/// <summary>
/// Long calls whose reader or process pauses: they go on after what was received, or say with their position why not. The table is in client/README.md; the
/// pauses themselves, of processes, are in tests/KvCluster.ClusterTests/Faults/PauseTests.cs.
/// </summary>
public sealed class PauseTests
{
    private static readonly string[] Keys = [.. Enumerable.Range(0, 40).Select(static number => $"key-{number:D2}")];

    public static TheoryData<string, bool, bool> Ends
    {
        get
        {
            var ends = new TheoryData<string, bool, bool>();
            foreach (var end in (string[])["reset", "told", "internal", "cancelled"])
            {
                foreach (var isReverse in (bool[])[false, true])
                {
                    ends.Add(end, isReverse, false);
                    ends.Add(end, isReverse, true);
                }
            }
            return ends;
        }
    }

    /// <summary>
    /// A scan whose reader paused for a minute, or for seconds while memory was short, was reset by the node. It returned 453 of 63,436 entries.
    /// </summary>
    [Theory]
    [MemberData(nameof(Ends))]
    public async Task Scan_WhoseStreamWasEnded_GoesOnAfterItsLastKey(string end, bool isReverse, bool byARouter)
    {
        await using var cluster = await FilledAsync(2, "key-20");
        await using var router = byARouter ? await RouterOfAsync(cluster) : null;
        var pages = 0;
        foreach (var node in cluster.Nodes)
        {
            node.ScanScript = _ =>
            {
                if (++pages % 3 == 0)
                    throw EndOf(end);
            };
        }
        await using var client = new KvClient(
            new KvClientOptions { Endpoints = [router?.Address ?? cluster.Endpoint], Gateway = byARouter, Timeout = Eventually.Limit });
        Assert.Equal(isReverse ? Keys.Reverse() : Keys, await ScanAsync(client, new KvScan { Reverse = isReverse }));
        Assert.True(cluster.Nodes.Sum(static node => node.Scans.Count) > 4);
    }

    [Theory]
    [InlineData("reset")]
    [InlineData("told")]
    public async Task Scan_OfOneSnapshot_WhoseReaderPaused_SaysThatTheSnapshotIsGone_AndItsPosition(string end)
    {
        await using var cluster = await FilledAsync(1);
        var pages = 0;
        cluster.Nodes[0].ScanScript = _ =>
        {
            if (++pages == 3)
                throw EndOf(end);
        };
        await using var client = cluster.Connect();
        var failure = await Assert.ThrowsAsync<KvSnapshotTooOldException>(() => ScanAsync(client, new KvScan { OneSnapshot = true }));
        Assert.Equal("SNAPSHOT_TOO_OLD", failure.Reason);
        Assert.Contains("up to the key \"key-05\" were returned", failure.Message, StringComparison.Ordinal);
    }

    [Theory]
    [InlineData("reset", "NOT_READ")]
    [InlineData("unavailable", "NODE_UNREACHABLE")]
    public async Task Scan_ThatBringsNothingMore_EndsInTime_WithItsPosition(string end, string reason)
    {
        await using var cluster = await FilledAsync(1);
        var pages = 0;
        cluster.Nodes[0].ScanScript = _ =>
        {
            if (++pages > 2)
                throw EndOf(end);
        };
        await Eventually.LongEnoughAsync(TimeSpan.FromMilliseconds(500), async time =>
        {
            pages = 0;
            await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.Endpoint], Timeout = time });
            var failure = await Assert.ThrowsAnyAsync<KvException>(() => ScanAsync(client, new KvScan()).WaitAsync(Eventually.Limit));
            Assert.Equal(ChangeOutcome.NotApplied, failure.Outcome);
            // A time that was too short for the pages before, or that passed while an attempt was in progress.
            if (failure.Reason != reason || pages < 3)
                return false;
            Assert.Contains("up to the key \"key-05\" were returned", failure.Message, StringComparison.Ordinal);
            return true;
        });
    }

    /// <summary>A scan for which no stream of a connection was free waited for ever.</summary>
    [Fact]
    public async Task Scan_ThatNeverBegins_EndsInTime()
    {
        await using var cluster = await FilledAsync(1);
        // Its connections are accepted by the system, and nothing is answered on them.
        using var silent = new TcpListener(IPAddress.Loopback, 0);
        silent.Start();
        cluster.AddressesTold[1] = $"http://127.0.0.1:{((IPEndPoint)silent.LocalEndpoint).Port}";
        await Eventually.LongEnoughAsync(TimeSpan.FromMilliseconds(500), async time =>
        {
            await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.Endpoint], Timeout = time });
            var failure = await Assert.ThrowsAnyAsync<KvException>(() => ScanAsync(client, new KvScan()).WaitAsync(Eventually.Limit));
            Assert.Equal(ChangeOutcome.NotApplied, failure.Outcome);
            // There is another reason if the time was too short for the map.
            return failure.Reason == "DEADLINE_PASSED";
        });
    }

    [Fact]
    public async Task GetMany_OfSeveralParts_OfWhichOneLosesItsStream_AsksForThatPartAgain()
    {
        await using var cluster = await FilledAsync(2, "key-20");
        await using var client = cluster.Connect();
        var asked = 0;
        cluster.Nodes[1].Script = call =>
        {
            if (call.Method != V1.Method.GetMany || Interlocked.Increment(ref asked) > 1)
                return Task.FromResult<V1.Reply?>(null);
            cluster.Nodes[1].Abort();
            return Task.FromResult<V1.Reply?>(FakeNode.Silence);
        };
        var found = await client.GetManyAsync([.. Keys.Select(static key => (KvKey)key)]);
        Assert.All(found, static result => Assert.True(result.Found));
        // Other nodes are asked for the part of a node that was lost, and refuse it.
        Assert.Single(cluster.Nodes[0].Calls, static call => call.Method == V1.Method.GetMany
            && V1.GetManyRequest.Parser.ParseFrom(call.Request).Keys[0].ToStringUtf8() == Keys[0]);
        Assert.True(asked > 1);
    }

    /// <summary>A process that stood still for an hour has heard nothing for an hour, which is no silence of the cluster.</summary>
    [Fact]
    public void AwakeClock_LeavesOutTheTimeInWhichTheProcessStoodStill()
    {
        var time = new ManualTime();
        using var clock = new AwakeClock(time);
        for (var step = 0; step < 100; step++)
            time.Advance(TimeSpan.FromMilliseconds(100));
        Assert.Equal(10_000, clock.NowMs);
        time.Advance(TimeSpan.FromHours(1));
        Assert.InRange(clock.NowMs, 10_000, 12_000);
        var awake = clock.NowMs;
        time.Advance(TimeSpan.FromMilliseconds(700));
        Assert.Equal(awake + 700, clock.NowMs);
    }

    private static RpcException EndOf(string end) => end switch
    {
        "told" => CallStatus.Create(StatusCode.ResourceExhausted, "NOT_READ", "The caller does not read its replies.", "unknown").ToRpcException(),
        // As the other ends of a stream that was reset see it: a code without details.
        "reset" => new RpcException(new Status(StatusCode.ResourceExhausted, "The peer reset the call: ENHANCE_YOUR_CALM (0xb)")),
        "internal" => new RpcException(new Status(StatusCode.Internal, "The peer reset the call: INTERNAL_ERROR (0x2)")),
        "cancelled" => new RpcException(new Status(StatusCode.Cancelled, "The peer reset the call: CANCEL (0x8)")),
        _ => new RpcException(new Status(StatusCode.Unavailable, "The connection was lost.")),
    };

    private static async Task<List<string>> ScanAsync(KvClient client, KvScan scan)
    {
        var seen = new List<string>();
        await foreach (var entry in client.ScanAsync(scan))
            seen.Add(Encoding.UTF8.GetString(entry.Key.Span));
        return seen;
    }

    private static async Task<FakeCluster> FilledAsync(int nodes, params string[] splits)
    {
        var cluster = await FakeCluster.StartAsync(nodes, splits);
        await using var client = cluster.Connect();
        foreach (var key in Keys)
            await client.PutAsync(key, "value");
        return cluster;
    }

    private static Task<RouterHost> RouterOfAsync(FakeCluster cluster) => RouterHost.StartAsync(
        new RouterOptions { Listen = "http://127.0.0.1:0", Seeds = [cluster.Endpoint], Timeout = Eventually.Limit },
        new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None);
}
