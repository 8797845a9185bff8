using System.Diagnostics;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Processes;
using KvCluster.V1;

namespace KvCluster.ClusterTests.Telemetry;

/// <summary>What the real program sends by OTLP when OpenTelemetry's variables are set.</summary>
public sealed class OtlpTests
{
    [ToolFact("etcd", "etcdctl")]
    [Trait("Turn", "1")]
    public async Task Node_WithAnEndpoint_SendsTracesMetricsWithExemplarsAndLogs()
    {
        await using var receiver = await OtlpReceiver.StartAsync();
        await using var cluster = await FaultCluster.StartAsync(nodes: 1, prepare: node => node.Wrapper =
        [
            "env", $"OTEL_EXPORTER_OTLP_ENDPOINT={receiver.Address}", "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "OTEL_METRIC_EXPORT_INTERVAL=500",
            "OTEL_BSP_SCHEDULE_DELAY=200", "OTEL_BLRP_SCHEDULE_DELAY=200", "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test",
        ]);
        var trace = ActivityTraceId.CreateRandom();
        var put = new PutRequest { Key = ByteString.CopyFromUtf8("key"), Value = ByteString.CopyFromUtf8("value") };
        var parent = new Metadata { { "traceparent", $"00-{trace}-{ActivitySpanId.CreateRandom()}-01" } };
        await FaultCluster.AnsweredAsync(() => cluster.KvOf(1).PutAsync(put, parent, DateTime.UtcNow.AddSeconds(60)));
        var traceBytes = Convert.FromHexString(trace.ToString());
        await Eventually.TrueAsync(() => receiver.Has("/v1/traces", traceBytes) && receiver.Has("/v1/traces", "journal write"), "the trace comes");
        await Eventually.TrueAsync(() => receiver.Has("/v1/metrics", "kvcluster.node.journal.write.duration"), "metrics come");
        await Eventually.TrueAsync(() => receiver.Has("/v1/metrics", traceBytes), "an exemplar names the trace");
        await Eventually.TrueAsync(() => receiver.Has("/v1/logs", "KvCluster.Node.NodeHost"), "logs come");
        foreach (var path in (string[])["/v1/traces", "/v1/metrics", "/v1/logs"])
        {
            Assert.True(receiver.Has(path, "kv-node"));
            Assert.True(receiver.Has(path, "node-1"));
            Assert.True(receiver.Has(path, "deployment.environment.name"));
        }
    }
}
