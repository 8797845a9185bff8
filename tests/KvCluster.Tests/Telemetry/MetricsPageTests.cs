using System.Buffers;
using System.Diagnostics.Metrics;
using System.Text;
using KvCluster.Processes;
using KvCluster.ServiceDefaults.Telemetry;
using KvCluster.Telemetry;

namespace KvCluster.Tests.Telemetry;

/// <summary>The text that Prometheus scrapes.</summary>
public sealed class MetricsPageTests : IDisposable
{
    private readonly Meter _meter = new("KvCluster.Tests.MetricsPage");
    private readonly MetricsPage _page;

    private string _cluster = "";

    public MetricsPageTests() => _page = new MetricsPage(meter => ReferenceEquals(meter, _meter), () => _cluster);

    public void Dispose()
    {
        _page.Dispose();
        _meter.Dispose();
    }

    [Fact]
    public void Write_OfACounter_AddsUpByAttributes()
    {
        var counter = _meter.CreateCounter<long>("kvcluster.test.things", "{thing}", "Things that\nhappened, by \\ kind.");
        counter.Add(7);
        Write();
        counter.Add(2, Tag("kvcluster.kind", "a \"quoted\\ one\"\n"));
        counter.Add(3, Tag("kvcluster.kind", "a \"quoted\\ one\"\n"));
        counter.Add(1);
        Assert.Equal(
            """
            # HELP kvcluster_test_things_total Things that\nhappened, by \\ kind.
            # TYPE kvcluster_test_things_total counter
            kvcluster_test_things_total 1
            kvcluster_test_things_total{kvcluster_kind="a \"quoted\\ one\"\n"} 5

            """.ReplaceLineEndings("\n"),
            Write());
    }

    [Fact]
    public void Write_BeforeTheFirstPage_NothingIsMeasured()
    {
        var counter = _meter.CreateCounter<long>("kvcluster.test.things");
        Assert.False(counter.Enabled);
        Write();
        Assert.True(counter.Enabled);
    }

    [Fact]
    public void Write_OfAHistogram_HasCumulativeBucketsOfItsAdvice()
    {
        var histogram = _meter.CreateHistogram(
            "kvcluster.test.duration", "s", "How long.", null, new InstrumentAdvice<double> { HistogramBucketBoundaries = [0.00005, 0.125] });
        Write();
        foreach (var value in new[] { 0, 0.0625, 0.125, 4 })
            histogram.Record(value, Tag("rpc.method", "Put"));
        Assert.Equal(
            """
            # HELP kvcluster_test_duration_seconds How long.
            # TYPE kvcluster_test_duration_seconds histogram
            kvcluster_test_duration_seconds_bucket{rpc_method="Put",le="0.00005"} 1
            kvcluster_test_duration_seconds_bucket{rpc_method="Put",le="0.125"} 3
            kvcluster_test_duration_seconds_bucket{rpc_method="Put",le="+Inf"} 4
            kvcluster_test_duration_seconds_sum{rpc_method="Put"} 4.1875
            kvcluster_test_duration_seconds_count{rpc_method="Put"} 4

            """.ReplaceLineEndings("\n"),
            Write());
    }

    [Fact]
    public void Write_OfAnObservedGauge_ShowsCurrentSeriesOnly()
    {
        var shards = new List<(int Shard, long Lag)> { (1, 10), (2, 20) };
        _meter.CreateObservableGauge(
            "kvcluster.test.lag.size", () => shards.Select(shard => new Measurement<long>(shard.Lag, Tag("kvcluster.shard", shard.Shard))), "By", "");
        Assert.Contains("kvcluster_test_lag_size_bytes{kvcluster_shard=\"2\"} 20\n", Write(), StringComparison.Ordinal);
        shards.RemoveAt(1);
        shards[0] = (1, 11);
        var text = Write();
        Assert.Contains("kvcluster_test_lag_size_bytes{kvcluster_shard=\"1\"} 11\n", text, StringComparison.Ordinal);
        Assert.DoesNotContain("kvcluster_shard=\"2\"", text, StringComparison.Ordinal);
    }

    [Fact]
    public void Write_WithMoreSeriesThanItsBound_CombinesTheRest()
    {
        var counter = _meter.CreateCounter<long>("kvcluster.test.things");
        Write();
        for (var index = 0; index < MetricFamily.SeriesMax + 3; index++)
            counter.Add(1, Tag("kvcluster.shard", index));
        var text = Write();
        Assert.Contains("kvcluster_test_things_total{otel_metric_overflow=\"true\"} 3\n", text, StringComparison.Ordinal);
        Assert.Equal(MetricFamily.SeriesMax + 1 + 2, text.Count(c => c == '\n'));
    }

    /// <summary>Two clusters in one Prometheus, one of them without a leader: no alert fired, because no series said whose it was.</summary>
    [Fact]
    public void Write_OnceTheClusterIsKnown_LabelsEverySeriesWithIt()
    {
        var counter = _meter.CreateCounter<long>("kvcluster.test.things");
        var histogram = _meter.CreateHistogram("kvcluster.test.duration", "s", "", null, new InstrumentAdvice<double> { HistogramBucketBoundaries = [1] });
        Write();
        counter.Add(1);
        histogram.Record(2, Tag("rpc.method", "Put"));
        Assert.DoesNotContain("kvcluster_cluster", Write(), StringComparison.Ordinal);
        _cluster = "orders";
        var series = Write().Split('\n', StringSplitOptions.RemoveEmptyEntries).Where(static line => line[0] != '#').ToArray();
        Assert.Equal(
            [
                "kvcluster_test_duration_seconds_bucket{kvcluster_cluster=\"orders\",rpc_method=\"Put\",le=\"1\"} 0",
                "kvcluster_test_duration_seconds_bucket{kvcluster_cluster=\"orders\",rpc_method=\"Put\",le=\"+Inf\"} 1",
                "kvcluster_test_duration_seconds_sum{kvcluster_cluster=\"orders\",rpc_method=\"Put\"} 2",
                "kvcluster_test_duration_seconds_count{kvcluster_cluster=\"orders\",rpc_method=\"Put\"} 1",
                "kvcluster_test_things_total{kvcluster_cluster=\"orders\"} 1",
            ],
            series);
    }

    [Fact]
    public void Write_OfNumbers_WritesEachAsPrometheusReadsIt()
    {
        double[] values = [0, -1.5, 123456789012, 0.1 + 0.2, 1e-300, double.MaxValue, double.PositiveInfinity, double.NegativeInfinity, double.NaN];
        _meter.CreateObservableGauge(
            "kvcluster.test.numbers", () => values.Select((value, index) => new Measurement<double>(value, Tag("kvcluster.shard", index))), null, "");
        var written = Write().Split('\n', StringSplitOptions.RemoveEmptyEntries).Where(static line => line[0] != '#')
            .Select(static line => line[(line.LastIndexOf(' ') + 1)..]);
        Assert.Equal(["0", "-1.5", "123456789012", "0.30000000000000004", "1E-300", "1.7976931348623157E+308", "+Inf", "-Inf", "NaN"], written);
    }

    // A scrape of an idle node with 100 shards took 50 ms or more, most of it for lines that were the same each time, and their text was megabytes of garbage.
    [Fact]
    public void WriteTo_OfKnownSeries_AllocatesNothingForTheirLines()
    {
        var counter = _meter.CreateCounter<long>("kvcluster.test.things");
        var output = new ArrayBufferWriter<byte>(1 << 20);
        _page.WriteTo(output);
        for (var index = 0; index < 1_000; index++)
            counter.Add(1, Tag("kvcluster.shard", index));
        long allocated = 0;
        for (var page = 0; page < 2; page++)
        {
            output.ResetWrittenCount();
            var before = GC.GetAllocatedBytesForCurrentThread();
            _page.WriteTo(output);
            allocated = GC.GetAllocatedBytesForCurrentThread() - before;
        }
        Assert.Equal(1_002, output.WrittenSpan.Count((byte)'\n'));
        Assert.InRange(allocated, 0, 10_000);
    }

    [Fact]
    public void Write_OfOtherMeters_ShowsNothing()
    {
        using var other = new Meter("KvCluster.Tests.MetricsPage");
        other.CreateObservableGauge("kvcluster.test.other", () => 1);
        Assert.Equal("", Write());
    }

    [Fact]
    public async Task Measurements_FromManyThreads_AreAllCounted()
    {
        var histogram = _meter.CreateHistogram("kvcluster.test.sizes", "By", "", null, Buckets.Bytes);
        Write();
        await Task.WhenAll(Enumerable.Range(0, 4).Select(_ => Task.Run(() =>
        {
            for (var index = 0; index < 10_000; index++)
                histogram.Record(index % 2 == 0 ? 1 : 10_000);
        })));
        var text = Write();
        Assert.Contains("kvcluster_test_sizes_bytes_count 40000\n", text, StringComparison.Ordinal);
        Assert.Contains("kvcluster_test_sizes_bytes_bucket{le=\"4096\"} 20000\n", text, StringComparison.Ordinal);
        Assert.Contains($"kvcluster_test_sizes_bytes_sum {20_000L * 10_001}\n", text, StringComparison.Ordinal);
    }

    [Theory]
    [InlineData("dotnet.process.cpu.time", "s", true, false, "dotnet_process_cpu_time_seconds_total")]
    [InlineData("kvcluster.node.journal.write.size", "By", false, false, "kvcluster_node_journal_write_size_bytes")]
    [InlineData("kvcluster.client.routes", "{key}", true, false, "kvcluster_client_routes_total")]
    [InlineData("a.share", "1", false, true, "a_share_ratio")]
    [InlineData("a.seconds", "s", false, true, "a_seconds")]
    [InlineData("a..b-c.", null, false, true, "a_b_c")]
    public void Name_IsAsPrometheusTranslatesOtlp(string name, string? unit, bool isMonotonic, bool isGauge, string expected) =>
        Assert.Equal(expected, MetricName.Of(name, unit, new MetricKind(isMonotonic, isGauge, false, false, false)));

    /// <summary>Prometheus' own checker accepts the page with the runtime's meters and ours.</summary>
    [ToolFact("promtool")]
    public async Task Write_OfTheRuntime_IsAcceptedByPromtool()
    {
        using var page = new MetricsPage(meter => ReferenceEquals(meter, _meter) || MetricsPage.IsOfProcess(meter), static () => "test \"1\"");
        var histogram = _meter.CreateHistogram("kvcluster.test.duration", "s", "How long.", null, Buckets.Seconds);
        Write(page);
        histogram.Record(0.1, Tag("rpc.method", "Put \"x\"\n"));
        var file = Path.GetTempFileName();
        try
        {
            await File.WriteAllTextAsync(file, Write(page));
            var (exitCode, output, error) = await Tools.RunAsync("sh", "-c", $"promtool check metrics < '{file}'");
            // 3 means that it dislikes names, which are those of the runtime.
            Assert.True(exitCode is 0 or 3, $"{output} {error}");
            Assert.DoesNotContain("error while linting", error, StringComparison.Ordinal);
        }
        finally
        {
            File.Delete(file);
        }
    }

    private string Write() => Write(_page);

    private static string Write(MetricsPage page)
    {
        var bytes = new ArrayBufferWriter<byte>();
        page.WriteTo(bytes);
        return Encoding.UTF8.GetString(bytes.WrittenSpan);
    }

    private static KeyValuePair<string, object?> Tag(string key, object value) => new(key, value);
}
