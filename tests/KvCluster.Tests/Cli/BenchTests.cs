using System.Collections.Concurrent;
using System.Diagnostics;
using Google.Protobuf.WellKnownTypes;
using Google.Rpc;
using Grpc.Core;
using KvCluster.Cli.Bench;
using KvCluster.Client;
using KvCluster.Processes;
using KvCluster.Tests.Client;

namespace KvCluster.Tests.Cli;

/// <summary>`kv bench`: which operations it makes, on which keys, and how it counts their times.</summary>
public sealed class BenchTests
{
    [Fact]
    public void Mix_OfEachWorkload_IsAHundred_AndEachNumberHasItsOperation() => Assert.All(Workload.All, static workload =>
    {
        Assert.Equal(100, workload.Mix.Sum(static part => part.Percent));
        foreach (var (operation, percent) in workload.Mix)
            Assert.Equal(percent, Enumerable.Range(0, 100).Count(number => workload.OperationOf(number) == operation));
    });

    [Theory]
    [InlineData(1)]
    [InlineData(2)]
    [InlineData(1_000)]
    [InlineData(1_000_000)]
    public void Zipfian_OfRandomNumbers_StaysInItsRange_AndPrefersTheFirst(int count)
    {
        var zipfian = new Zipfian(count);
        var random = new Random(1);
        var numbers = Enumerable.Range(0, 20_000).Select(_ => zipfian.NumberOf(random.NextDouble())).ToList();
        Assert.InRange(numbers.Min(), 0, 0);
        Assert.InRange(numbers.Max(), 0, count - 1);
        // Its share is one in the sum of all.
        Assert.InRange(numbers.Count(static number => number == 0), 0.9 * numbers.Count / Zipfian.Zeta(count), (1.1 * numbers.Count / Zipfian.Zeta(count)) + 1);
    }

    [Fact]
    public void Zeta_OfMany_IsTheSum()
    {
        const int count = 200_000;
        Assert.Equal(Enumerable.Range(1, count).Sum(static number => Math.Pow(number, -0.99)), Zipfian.Zeta(count), 6);
    }

    [Fact]
    public void Keys_ThatAreNew_FollowTheOthers_AndTheLatestAreChosenMost()
    {
        var keys = new BenchKeys(KeyDistribution.Latest, 1_000);
        Assert.Equal(BenchKeys.At(1_000).ToArray(), keys.New().ToArray());
        Assert.Equal("bench/0000001001"u8.ToArray(), keys.New().ToArray());
        Assert.Equal(1_002, keys.Count);
        var newest = BenchKeys.At(1_001).ToArray();
        Assert.InRange(Enumerable.Range(0, 10_000).Count(_ => keys.Choose().Span.SequenceEqual(newest)), 500, 5_000);
    }

    [Fact]
    public void Latencies_OfOperations_AreTheirPercentiles()
    {
        var latencies = new Latencies();
        for (var milliseconds = 1; milliseconds <= 1_000; milliseconds++)
            latencies.Add(milliseconds % 2 == 0 ? BenchOperation.Get : BenchOperation.Put, TimeSpan.FromMilliseconds(milliseconds));
        latencies.Add(BenchOperation.Get, TimeSpan.FromDays(1));
        var all = latencies.OfAll();
        Assert.Equal((1_001, TimeSpan.FromDays(1)), (all.Count, all.Max));
        Assert.InRange(all.P50.TotalMilliseconds, 499, 503);
        Assert.InRange(all.P99.TotalMilliseconds, 989, 994);
        Assert.Equal(
            [(BenchOperation.Get, 501L), (BenchOperation.Put, 500L)], latencies.ByOperation().Select(static one => (one.Operation, one.Summary.Count)));
    }

    /// <summary>A cluster that stood still delayed one operation of each caller, and was measured as if nothing else had been due.</summary>
    [Fact]
    public async Task OpenLoop_OverAClusterThatStandsStill_CountsWhatWasDueMeanwhile()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        var latencies = new Latencies();
        // A hundred in a second are too many for one caller if each takes 20 ms, so most have waited before they are begun.
        cluster.Nodes[0].Script = async _ =>
        {
            await Task.Delay(20);
            return null;
        };
        await new BenchRun(client, Workload.All.First(static one => one.Name == "get"), new BenchKeys(KeyDistribution.Uniform, 10), [], latencies)
            .OpenLoopAsync(callers: 1, rate: 100, TimeSpan.FromSeconds(1), CancellationToken.None);
        var all = latencies.OfAll();
        Assert.InRange(all.Count, 50, 101);
        Assert.True(all.P90 > TimeSpan.FromMilliseconds(200), $"{all}");
    }

    /// <summary>The run went on until all that had been due was answered: for an hour after a minute at sixty times what the cluster could do.</summary>
    [Fact]
    public async Task OpenLoop_AtARateThatIsNotReached_EndsSoon_AndCountsWhatIsLeft()
    {
        const int callers = 2;
        const int answers = 10;
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        var (latencies, asked) = (new Latencies(), 0);
        cluster.Nodes[0].Script = _ => Task.FromResult<V1.Reply?>(Interlocked.Increment(ref asked) > answers ? FakeNode.Silence : null);
        var left = await new BenchRun(
            client, Workload.All.First(static one => one.Name == "get"), new BenchKeys(KeyDistribution.Uniform, 10), [], latencies)
            .OpenLoopAsync(callers, rate: 1_000, TimeSpan.FromSeconds(1), CancellationToken.None).WaitAsync(Eventually.Limit);
        Assert.Equal((answers, callers), (latencies.OfAll().Count, left.NotAnswered));
        Assert.InRange(left.NotSent, 100, long.MaxValue);
    }

    /// <summary>The first operation that had no place in time ended the run, so that large values could not be measured.</summary>
    [Fact]
    public async Task CloseLoop_WhileCallsAreRefusedAsBusy_MakesThemAgain_AndCountsTheWholeTime()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.Endpoint], Timeout = TimeSpan.FromSeconds(2) });
        var (latencies, began) = (new Latencies(), Stopwatch.GetTimestamp());
        var busy = TimeSpan.FromSeconds(3);
        cluster.Nodes[0].Script = call => Task.FromResult<V1.Reply?>(
            Stopwatch.GetElapsedTime(began) < busy ? FakeNode.Refuse(call, StatusCode.Unavailable, "BUSY") : null);
        await new BenchRun(client, Workload.All.First(static one => one.Name == "get"), new BenchKeys(KeyDistribution.Uniform, 10), [], latencies)
            .CloseLoopAsync(callers: 1, TimeSpan.FromMilliseconds(1), CancellationToken.None).WaitAsync(Eventually.Limit);
        Assert.Equal(1, latencies.OfAll().Count);
        Assert.True(latencies.OfAll().Max > TimeSpan.FromSeconds(2), $"{latencies.OfAll()}");
    }

    /// <summary>Each caller made its operation again at once, however long the refusal had asked it to wait.</summary>
    [Fact]
    public async Task CloseLoop_RefusedAsBusyWithATimeToWait_WaitsForThatLong_ButNotForLongerThanItGoesOn()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.Endpoint], Timeout = TimeSpan.FromMilliseconds(300) });
        // The first call also connects.
        await client.GetAsync("a", new KvGetOptions { Timeout = Eventually.Limit });
        var refused = new ConcurrentQueue<V1.Call>();
        cluster.Nodes[0].Script = call =>
        {
            refused.Enqueue(call);
            return Task.FromResult<V1.Reply?>(FakeNode.Refuse(
                call, StatusCode.Unavailable, "BUSY", details: new RetryInfo { RetryDelay = Duration.FromTimeSpan(TimeSpan.FromDays(1)) }));
        };
        var run = new BenchRun(client, Workload.All.First(static one => one.Name == "get"), new BenchKeys(KeyDistribution.Uniform, 10), [], new Latencies())
        {
            BusyMax = TimeSpan.FromSeconds(3),
        };
        await Assert.ThrowsAsync<KvUnavailableException>(
            () => run.CloseLoopAsync(callers: 1, TimeSpan.FromMilliseconds(1), CancellationToken.None).WaitAsync(Eventually.Limit));
        // Two calls, each of which the client may send again when its time is nearly over.
        Assert.InRange(refused.Count, 0, 4);
    }

    /// <summary>The first refusal ended the run if the operation had been due for a minute, as most are at a rate that is not reached.</summary>
    [Fact]
    public async Task OpenLoop_RefusedAsBusyAfterALongWaitForACaller_MakesTheOperationAgain()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.Endpoint], Timeout = TimeSpan.FromSeconds(1) });
        // The first call also connects.
        await client.GetAsync("a", new KvGetOptions { Timeout = Eventually.Limit });
        var (latencies, began) = (new Latencies(), Stopwatch.GetTimestamp());
        var (busyFrom, busyUntil) = (TimeSpan.FromSeconds(2), TimeSpan.FromSeconds(3.5));
        cluster.Nodes[0].Script = async call =>
        {
            var passed = Stopwatch.GetElapsedTime(began);
            if (passed >= busyFrom && passed < busyUntil)
                return FakeNode.Refuse(call, StatusCode.Unavailable, "BUSY");
            await Task.Delay(20);
            return null;
        };
        await new BenchRun(client, Workload.All.First(static one => one.Name == "get"), new BenchKeys(KeyDistribution.Uniform, 10), [], latencies)
        {
            BusyMax = TimeSpan.FromSeconds(2),
        }.OpenLoopAsync(callers: 1, rate: 1_000, TimeSpan.FromSeconds(3), CancellationToken.None).WaitAsync(Eventually.Limit);
        // The operation whose calls were refused had waited for a caller for longer than that.
        Assert.True(latencies.OfAll().Max > TimeSpan.FromSeconds(2), $"{latencies.OfAll()}");
    }

    [ToolTheory("bash")]
    [InlineData("a --load", "get put", 50)]
    [InlineData("e --load --rate 200", "insert scan", 50)]
    [InlineData("f", "get modify", 10)]
    [InlineData("put --rate 100", "put", 10)]
    [Trait("Turn", "5")]
    public async Task Bench_OfAWorkload_MakesItsOperations(string workload, string kinds, int operationsMin)
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        var (exitCode, output, error) = await KvProcess.RunInShellAsync(
            $"$KV bench {workload} --callers 4 --keys 200 --seconds 1 --endpoint {cluster.Endpoint} --output json");
        Assert.True(exitCode == 0, error);
        Assert.Equal(workload.Contains("--load", StringComparison.Ordinal), error.StartsWith("kv: 200 keys written in ", StringComparison.Ordinal));
        var report = System.Text.Json.JsonDocument.Parse(output).RootElement;
        Assert.InRange(report.GetProperty("operations").GetInt64(), operationsMin, long.MaxValue);
        Assert.Equal(kinds.Split(' '), report.GetProperty("kinds").EnumerateArray().Select(static one => one.GetProperty("kind").GetString()));
        Assert.All((string[])["p50_ms", "p90_ms", "p99_ms", "p999_ms", "p9999_ms", "max_ms", "operations_per_second", "seconds"],
            name => Assert.InRange(report.GetProperty(name).GetDouble(), 0.0001, double.MaxValue));
    }
}
