using System.Diagnostics;
using System.Diagnostics.Metrics;
using Google.Protobuf;
using Google.Rpc;
using Grpc.Core;
using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Tests.Grpc;
using KvCluster.V1;

namespace KvCluster.Tests.Node;

/// <summary>Scans that are read slowly, at a node: how long their snapshots stay.</summary>
public sealed class ScanBoundsTests
{
    private const int Keys = 200;

    // A scan that was not read held its snapshot until its caller went away, and the node kept the memory of everything that was written meanwhile.
    [Fact]
    public async Task Scan_ThatIsNotRead_EndsWithSnapshotTooOldBehindTrueEntries()
    {
        await using var cluster = await NodeCluster.StartAsync(new StoreOptions { SnapshotAgeMax = TimeSpan.FromMilliseconds(300) });
        var metrics = new Dictionary<string, double>();
        using var listener = cluster.WatchMetrics(1, metrics);
        await AssertEndsTooOldAsync(cluster, async () =>
        {
            // How replicas stand is read now and then: the change tells a reading with the scan in it from one before.
            var change = (await cluster.PutAsync(new PutRequest { Key = Key(Keys) })).Position.Etag.Change;
            await Eventually.TrueAsync(
                () => Record(listener, metrics, "kvcluster.node.shard.changes") >= change && metrics["kvcluster.node.store.readers"] == 0, "the snapshot of the scan that nobody reads is gone");
        });
    }

    [Fact]
    public async Task Scan_ThatPinsTooMuch_EndsWithSnapshotTooOldBehindTrueEntries()
    {
        await using var cluster = await NodeCluster.StartAsync(new StoreOptions { Pages = new PageStoreOptions { PinnedBytesMax = 1 << 20 } });
        // Every value anew: what the scan's snapshot has is kept for it alone.
        await AssertEndsTooOldAsync(cluster, meanwhile: () => FillAsync(cluster.KvOf(1), 2));
    }

    // The page that a caller does not take is flushed for as long as the stream is open; the deadline is the server's to keep, whatever the caller does about its own.
    [Fact]
    public async Task Scan_CallerNeitherReadsNorKeepsItsDeadline_EndsByTheDeadline()
    {
        await using var cluster = await NodeCluster.StartAsync(new StoreOptions { SnapshotAgeMax = TimeSpan.FromHours(1) });
        await FillAsync(cluster.KvOf(1), 1);
        var metrics = new Dictionary<string, double>();
        using var listener = cluster.WatchMetrics(1, metrics);
        await Eventually.LongEnoughAsync(TimeSpan.FromMilliseconds(300), async deadline =>
        {
            // Only the header: the client knows of no deadline.
            using var call = cluster.KvOf(1).Scan(new ScanRequest(), new Metadata { { "grpc-timeout", $"{deadline.TotalMilliseconds}m" } });
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
    public async Task Metrics_OfASnapshotThatIsHeld_TellItsAgeAndWhatItPins()
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
        using var call = kv.Scan(new ScanRequest());
        Assert.True(await call.ResponseStream.MoveNext(CancellationToken.None));
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
        // Another one goes on behind them.
        using var rest = kv.Scan(new ScanRequest { ResumeAfter = entries[^1].Key });
        Assert.True(await rest.ResponseStream.MoveNext(CancellationToken.None));
        Assert.Equal(Key(entries.Count), rest.ResponseStream.Current.Entries[0].Key);
    }

    /// <summary>Much more than a stream takes ahead of its reader.</summary>
    private static async Task FillAsync(Kv.KvClient kv, byte value)
    {
        var bytes = new byte[100_000];
        Array.Fill(bytes, value);
        for (var key = 0; key < Keys; key++)
            await kv.PutAsync(new PutRequest { Key = Key(key), Value = UnsafeByteOperations.UnsafeWrap(bytes) });
    }

    private static ByteString Key(int number) => ByteString.CopyFromUtf8($"key-{number:D4}");
}
