using System.Diagnostics;
using System.Globalization;
using System.Text;
using Google.Protobuf;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Client;
using KvCluster.Processes;
using KvCluster.V1;

namespace KvCluster.ClusterTests.Faults;

/// <summary>
/// Long calls whose reader, process or peer pauses, from outside: they go on after what was received. The table is in client/README.md. Pauses of seconds end
/// a stream only while memory is short; those of a minute do in any case, and are tested with KV_LONG=1.
/// </summary>
[Trait("Turn", "3")]
public sealed class PauseTests
{
    private const int BigBytes = 4 << 20;
    private const int BigValues = 8;
    private const int Readers = 8;
    private const int SmallKeys = 60_000;

    /// <summary>Longer than a stream may hold memory that others need.</summary>
    private static readonly TimeSpan ShortPause = TimeSpan.FromSeconds(5);

    /// <summary>Longer than any stream waits for its reader.</summary>
    private static readonly TimeSpan LongPause = TimeSpan.FromSeconds(70);

    /// <summary>A reader that paused while others needed the memory of its pages lost its scan.</summary>
    [ToolTheory("etcd", "etcdctl")]
    [InlineData(false)]
    [InlineData(true)]
    public async Task Scans_WhoseReadersPause_WhileMemoryIsShort_ReturnEverything(bool byARouter)
    {
        string[] little = ["--call-memory-mib", "128"];
        await using var cluster = await FaultCluster.StartAsync(nodes: 1, prepare: node => node.Options = little);
        var address = byARouter ? cluster.StartRouter(little) : cluster.DirectEndpoints[0];
        await using (var loader = new KvClient(new KvClientOptions { Endpoints = [address], Gateway = byARouter, Timeout = Eventually.Limit }))
        {
            for (var number = 0; number < BigValues; number++)
                await loader.PutAsync(Key(number), new byte[BigBytes]);
        }
        var scans = Enumerable.Range(0, Readers).Select(_ => ScanSlowlyAsync(address, byARouter)).ToArray();
        var plain = Enumerable.Range(0, Readers).Select(_ => ScanPlainlyAsync(address)).ToArray();
        Assert.All(await Task.WhenAll(scans), static keys => Assert.Equal(Enumerable.Range(0, BigValues).Select(static number => Encoding.UTF8.GetString(Key(number))), keys));
        // Otherwise the test would show nothing.
        Assert.Contains(StatusCode.ResourceExhausted, await Task.WhenAll(plain));
    }

    /// <summary>`kv scan packages/ | (sleep 68; wc -l)` gave 453 of 63,436 lines, and one whose process stood still was no better off.</summary>
    [LongToolTheory("etcd", "etcdctl")]
    [InlineData("reader", false)]
    [InlineData("reader", true)]
    [InlineData("process", false)]
    [InlineData("process", true)]
    public async Task Scan_OfKv_ThatPausesForMoreThanAMinute_PrintsEverything(string pauses, bool byARouter)
    {
        await using var cluster = await FaultCluster.StartAsync(nodes: 1);
        var address = byARouter ? cluster.StartRouter() : cluster.DirectEndpoints[0];
        await LoadAsync(address, byARouter);
        using var kv = Process.Start(new ProcessStartInfo(Tools.Built("kv", "KvCluster.Cli"), ["scan", "small/", "--endpoint", address, .. byARouter ? (string[])["--gateway"] : []])
        {
            RedirectStandardOutput = true,
            RedirectStandardError = true,
        })!;
        Assert.NotNull(await kv.StandardOutput.ReadLineAsync());
        if (pauses == "process")
            Signals.Pause(kv.Id);
        await Task.Delay(LongPause);
        if (pauses == "process")
            Signals.Resume(kv.Id);
        var lines = 1;
        var errors = kv.StandardError.ReadToEndAsync();
        while (await kv.StandardOutput.ReadLineAsync().WaitAsync(Eventually.Limit) is not null)
            lines++;
        await kv.WaitForExitAsync().WaitAsync(Eventually.Limit);
        Assert.Equal((SmallKeys, 0, ""), (lines, kv.ExitCode, await errors));
    }

    /// <summary>A load whose process stood still for longer than it waits for an acknowledgement gave up at once.</summary>
    [LongToolTheory("etcd", "etcdctl")]
    [InlineData(false)]
    [InlineData(true)]
    public async Task Load_OfKv_WhoseProcessStandsStillForMoreThanAMinute_WritesEverything(bool byARouter)
    {
        await using var cluster = await FaultCluster.StartAsync(nodes: 1);
        var address = byARouter ? cluster.StartRouter() : cluster.DirectEndpoints[0];
        using var kv = Process.Start(new ProcessStartInfo(Tools.Built("kv", "KvCluster.Cli"), ["load", "-", "--endpoint", address, .. byARouter ? (string[])["--gateway"] : []])
        {
            RedirectStandardInput = true,
            RedirectStandardOutput = true,
            RedirectStandardError = true,
        })!;
        for (var number = 0; number < SmallKeys; number++)
        {
            if (number == SmallKeys / 2)
            {
                Signals.Pause(kv.Id);
                await Task.Delay(LongPause);
                Signals.Resume(kv.Id);
            }
            await kv.StandardInput.WriteAsync(string.Create(CultureInfo.InvariantCulture, $"small/{number:d8}\tvalue\n"));
        }
        kv.StandardInput.Close();
        var (output, errors) = (kv.StandardOutput.ReadToEndAsync(), kv.StandardError.ReadToEndAsync());
        await kv.WaitForExitAsync().WaitAsync(Eventually.Limit);
        Assert.True(kv.ExitCode == 0, await output + await errors);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [address], Gateway = byARouter, Timeout = Eventually.Limit });
        Assert.Equal(SmallKeys, await client.CountAsync("small/"u8.ToArray()));
    }

    /// <summary>A scan and a load whose peer stands still fail over if there is another, and otherwise wait for it as long as they may.</summary>
    [ToolTheory("etcd", "etcdctl")]
    [InlineData(false)]
    [InlineData(true)]
    public async Task ScanAndLoad_WhoseNodeStandsStill_GoOn(bool byARouter)
    {
        await using var cluster = await FaultCluster.StartAsync(nodes: 3);
        var address = byARouter ? cluster.StartRouter() : cluster.DirectEndpoints[0];
        await LoadAsync(address, byARouter);
        await using var client = new KvClient(new KvClientOptions { Endpoints = byARouter ? [address] : cluster.DirectEndpoints, Gateway = byARouter, Timeout = Eventually.Limit });
        await using var load = client.BulkLoad(giveUpAfter: Eventually.Limit);
        var leader = await cluster.LeaderAsync();
        var (seen, added) = (0, 0);
        await foreach (var _ in client.ScanAsync(new KvScan { Prefix = "small/"u8.ToArray() }))
        {
            if (++seen == SmallKeys / 4)
                Signals.Pause(cluster.Node(leader).Id);
            if (seen % 10 == 0)
                await load.AddAsync(Encoding.UTF8.GetBytes(string.Create(CultureInfo.InvariantCulture, $"load/{added++:d8}")), "value"u8.ToArray());
        }
        await load.FlushAsync();
        Signals.Resume(cluster.Node(leader).Id);
        Assert.Equal((SmallKeys, added), (seen, load.AcknowledgedThrough));
        Assert.Equal(added, await client.CountAsync("load/"u8.ToArray()));
    }

    private static async Task<List<string>> ScanSlowlyAsync(string address, bool byARouter)
    {
        await using var client = new KvClient(new KvClientOptions { Endpoints = [address], Gateway = byARouter, Timeout = Eventually.Limit });
        var keys = new List<string>();
        await foreach (var entry in client.ScanAsync(new KvScan { Prefix = "big/"u8.ToArray() }))
        {
            keys.Add(Encoding.UTF8.GetString(entry.Key.Span));
            if (keys.Count is 1 or 4)
                await Task.Delay(ShortPause);
        }
        return keys;
    }

    // What any gRPC client sees. Returns how the stream ended.
    private static async Task<StatusCode> ScanPlainlyAsync(string address)
    {
        using var channel = GrpcChannel.ForAddress(address, new GrpcChannelOptions { MaxReceiveMessageSize = null });
        using var call = new Kv.KvClient(channel).Scan(new ScanRequest { Prefix = ByteString.CopyFromUtf8("big/") });
        try
        {
            for (var pages = 1; await call.ResponseStream.MoveNext(CancellationToken.None).WaitAsync(Eventually.Limit); pages++)
            {
                if (pages is 1 or 4)
                    await Task.Delay(ShortPause);
            }
            return StatusCode.OK;
        }
        catch (RpcException ended)
        {
            return ended.StatusCode;
        }
    }

    private static async Task LoadAsync(string address, bool byARouter)
    {
        await using var client = new KvClient(new KvClientOptions { Endpoints = [address], Gateway = byARouter, Timeout = Eventually.Limit });
        await using var load = client.BulkLoad();
        for (var number = 0; number < SmallKeys; number++)
            await load.AddAsync(Encoding.UTF8.GetBytes(string.Create(CultureInfo.InvariantCulture, $"small/{number:d8}")), new byte[100]);
    }

    private static byte[] Key(int number) => Encoding.UTF8.GetBytes(string.Create(CultureInfo.InvariantCulture, $"big/{number:d2}"));
}
