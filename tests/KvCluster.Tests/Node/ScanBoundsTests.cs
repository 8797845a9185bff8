using System.Diagnostics;
using System.Diagnostics.Metrics;
using Google.Protobuf;
using Google.Rpc;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Tests.Grpc;
using KvCluster.V1;

namespace KvCluster.Tests.Node;

/// <summary>Scans at a node that are read slowly: how long their snapshots live.</summary>
public sealed class ScanBoundsTests
{
    private const int Keys = 200;

    // A scan that nobody read held its snapshot until its caller went away, and the node kept the memory of everything written meanwhile.
    [Fact]
    public async Task Scan_ThatIsNotRead_EndsWithSnapshotTooOldAfterCorrectEntries()
    {
        await using var cluster = await NodeCluster.StartAsync(new StoreOptions { SnapshotAgeMax = TimeSpan.FromMilliseconds(300) });
        var metrics = new Dictionary<string, double>();
        using var listener = cluster.WatchMetrics(1, metrics);
        await AssertEndsTooOldAsync(cluster, async () =>
        {
            // Replicas are measured at intervals. The change distinguishes a measurement with the scan from an earlier one.
            var change = (await cluster.PutAsync(new PutRequest { Key = Key(Keys) })).Position.Etag.Change;
            await Eventually.TrueAsync(
                () => Record(listener, metrics, "kvcluster.node.shard.changes") >= change && metrics["kvcluster.node.store.readers"] == 0,
                "the snapshot of the scan that nobody reads is gone");
        });
    }

    [Fact]
    public async Task Scan_ThatPinsTooMuch_EndsWithSnapshotTooOldAfterCorrectEntries()
    {
        await using var cluster = await NodeCluster.StartAsync(new StoreOptions { Pages = new PageStoreOptions { PinnedBytesMax = 1 << 20 } });
        // Every value is overwritten, so the snapshot's values are kept for the scan alone.
        await AssertEndsTooOldAsync(cluster, meanwhile: () => FillAsync(cluster.KvOf(1), 2));
    }

    // A page that the caller does not take is flushed for as long as the stream is open. The server keeps the deadline, whatever the caller does.
    [Fact]
    public async Task Scan_CallerNeitherReadsNorKeepsItsDeadline_EndsByTheDeadline()
    {
        await using var cluster = await NodeCluster.StartAsync(new StoreOptions { SnapshotAgeMax = TimeSpan.FromHours(1) });
        await FillAsync(cluster.KvOf(1), 1);
        var metrics = new Dictionary<string, double>();
        using var listener = cluster.WatchMetrics(1, metrics);
        using var channel = GrpcChannel.ForAddress(cluster.AddressOf(1), TimeoutHeader.Options());
        await Eventually.LongEnoughAsync(TimeSpan.FromMilliseconds(300), async deadline =>
        {
            // Only the header carries the deadline; the client knows of none.
            using var call = new Kv.KvClient(channel.Calls())
                .Scan(new ScanRequest(), new Metadata { { TimeoutHeader.Metadata, $"{deadline.TotalMilliseconds}m" } });
            var waited = Stopwatch.StartNew();
            var wasActive = false;
            for (; waited.Elapsed < deadline && !wasActive; wasActive = Value("kvcluster.node.request.active") == 1)
                await Task.Delay(5);
            if (wasActive)
                await Eventually.TrueAsync(() => Value("kvcluster.node.request.active") == 0, "the scan ends");
            return wasActive;
        });

        double Value(string name) => Record(listener, metrics, name);
    }

    [Fact]
    [Trait("Turn", "3")]
    public async Task Metrics_OfAHeldSnapshot_ShowItsAgeAndPinnedBytes()
    {
        await using var cluster = await NodeCluster.StartAsync(new StoreOptions());
        await FillAsync(cluster.KvOf(1), 1);
        var metrics = new Dictionary<string, double>();
        using var listener = cluster.WatchMetrics(1, metrics);
        using (var call = cluster.KvOf(1).Scan(new ScanRequest()))
        {
            Assert.True(await call.ResponseStream.MoveNext(CancellationToken.None));
            await FillAsync(cluster.KvOf(1), 2);
            foreach (var owner in (string[])["store", "shard"])
            {
                await Eventually.TrueAsync(() => Value($"kvcluster.node.{owner}.snapshot.age") > 0, "the snapshot has an age");
                await Eventually.TrueAsync(() => Value($"kvcluster.node.{owner}.pinned.size") > 1_000_000, "the snapshot pins what it reaches");
            }
        }
        await Eventually.TrueAsync(() => Value("kvcluster.node.store.snapshot.age") == 0, "no snapshot is left");

        double Value(string name) => Record(listener, metrics, name);
    }

    private static double Record(MeterListener listener, Dictionary<string, double> metrics, string name)
    {
        metrics.Clear();
        listener.RecordObservableInstruments();
        return metrics.GetValueOrDefault(name);
    }

    private static async Task AssertEndsTooOldAsync(NodeCluster cluster, Func<Task> meanwhile)
    {
        var kv = cluster.KvOf(1);
        await FillAsync(kv, 1);
        using var call = await BeginAsync(kv, new ScanRequest());
        var entries = new List<Entry>(call.ResponseStream.Current.Entries);
        await meanwhile();
        var failure = await Assert.ThrowsAsync<RpcException>(async () =>
        {
            while (await call.ResponseStream.MoveNext(CancellationToken.None))
                entries.AddRange(call.ResponseStream.Current.Entries);
        });
        Assert.Equal(StatusCode.Aborted, failure.StatusCode);
        Assert.Equal("SNAPSHOT_TOO_OLD", failure.GetRpcStatus()!.GetDetail<ErrorInfo>()!.Reason);
        Assert.InRange(entries.Count, 1, Keys - 1);
        Assert.Equal(Enumerable.Range(0, entries.Count).Select(Key), entries.Select(entry => entry.Key));
        Assert.All(entries, entry => Assert.Equal(1, entry.Value[0]));
        // Another scan continues after them.
        using var rest = await BeginAsync(kv, new ScanRequest { ResumeAfter = entries[^1].Key });
        Assert.Equal(Key(entries.Count), rest.ResponseStream.Current.Entries[0].Key);
    }

    // The first page is there. On a busy machine the snapshot may be too old before that, and then the scan begins again.
    private static Task<AsyncServerStreamingCall<ScanPage>> BeginAsync(Kv.KvClient kv, ScanRequest request) => Eventually.AnsweredAsync(
        async () =>
        {
            var call = kv.Scan(request);
            try
            {
                Assert.True(await call.ResponseStream.MoveNext(CancellationToken.None));
                return call;
            }
            catch
            {
                call.Dispose();
                throw;
            }
        },
        static refused => refused.StatusCode == StatusCode.Aborted);

    /// <summary>Writes much more than a stream buffers ahead of its reader.</summary>
    private static async Task FillAsync(Kv.KvClient kv, byte value)
    {
        var bytes = new byte[100_000];
        Array.Fill(bytes, value);
        await Parallel.ForAsync(
            0, Keys, new ParallelOptions { MaxDegreeOfParallelism = 8 },
            async (key, _) => await kv.PutAsync(new PutRequest { Key = Key(key), Value = UnsafeByteOperations.UnsafeWrap(bytes) }));
    }

    private static ByteString Key(int number) => ByteString.CopyFromUtf8($"key-{number:D4}");
}
