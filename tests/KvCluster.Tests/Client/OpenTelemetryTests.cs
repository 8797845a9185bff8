using System.Collections.Concurrent;
using System.Diagnostics;
using OpenTelemetry;
using OpenTelemetry.Metrics;
using OpenTelemetry.Trace;

namespace KvCluster.Tests.Client;

/// <summary>What a program's OpenTelemetry gets of the client after one line.</summary>
public sealed class OpenTelemetryTests
{
    [Fact]
    public async Task Traces_HaveASpanForEachCall()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        using var caller = new Activity("caller").Start();
        using var spans = new EndedSpans();
        using var traces = Sdk.CreateTracerProviderBuilder().AddKvCluster().SetSampler(new OneTrace(caller.TraceId)).AddProcessor(spans).Build();
        await client.PutAsync("a", "1");
        await Eventually.TrueAsync(
            () => spans.Ended.Any(span => (span.Source.Name, span.DisplayName, span.TraceId) == ("KvCluster.Client", "kvcluster.v1.Kv/Put", caller.TraceId)),
            "the span of the put has ended");
    }

    [Fact]
    public async Task Metrics_AreThoseOfTheClient()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        using var exported = new ExportedNames();
        using var metrics = Sdk.CreateMeterProviderBuilder().AddKvCluster().AddReader(new BaseExportingMetricReader(exported)).Build();
        await using var client = cluster.Connect();
        await client.PutAsync("a", "1");
        Assert.True(metrics.ForceFlush());
        Assert.Contains("kvcluster.client.request.duration", exported.Names.Keys);
        Assert.Contains("kvcluster.client.connections", exported.Names.Keys);
        Assert.All(exported.Names.Keys, static name => Assert.StartsWith("kvcluster.client.", name, StringComparison.Ordinal));
    }

    /// <summary>Other tests in this process make calls, too.</summary>
    private sealed class OneTrace(ActivityTraceId trace) : Sampler
    {
        public override SamplingResult ShouldSample(in SamplingParameters samplingParameters) =>
            new(samplingParameters.TraceId == trace ? SamplingDecision.RecordAndSample : SamplingDecision.Drop);
    }

    private sealed class EndedSpans : BaseProcessor<Activity>
    {
        public ConcurrentQueue<Activity> Ended { get; } = new();

        public override void OnEnd(Activity data) => Ended.Enqueue(data);
    }

    private sealed class ExportedNames : BaseExporter<Metric>
    {
        public ConcurrentDictionary<string, bool> Names { get; } = new();

        public override ExportResult Export(in Batch<Metric> batch)
        {
            foreach (var metric in batch)
                Names[metric.Name] = true;
            return ExportResult.Success;
        }
    }
}
