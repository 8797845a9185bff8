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
[Trait("Turn", "2")]
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

    /// <summary>A laptop that was closed for a while: longer than sessions, held snapshots and every wait of a call.</summary>
    private static readonly TimeSpan VeryLongPause = TimeSpan.FromMinutes(10);

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
        Assert.All(await Task.WhenAll(scans), static keys => Assert.Equal(
            Enumerable.Range(0, BigValues).Select(static number => Encoding.UTF8.GetString(Key(number))), keys));
        // Otherwise the test would show nothing.
        Assert.Contains(StatusCode.ResourceExhausted, await Task.WhenAll(plain));
    }

    /// <summary>`kv scan packages/ | (sleep 68; wc -l)` gave 453 of 63,436 lines, and one whose process stood still was no better off.</summary>
    [LongToolTheory("etcd", "etcdctl")]
    [InlineData("reader", false)]
    [InlineData("reader", true)]
    [InlineData("process", false)]
    [InlineData("process", true)]
    public Task Scan_OfKv_ThatPausesForMoreThanAMinute_PrintsEverything(string pauses, bool byARouter) => ScanAsync(pauses, LongPause, byARouter);

    /// <summary>All at once, each on a cluster of its own, because they only wait.</summary>
    [LongToolFact("etcd", "etcdctl")]
    public Task ScansLoadsAndWatches_OfKv_ThatPauseForTenMinutes_MissNothing() => Task.WhenAll(((bool[])[false, true]).SelectMany(static byARouter => (Task[])
    [
        ScanAsync("reader", VeryLongPause, byARouter),
        ScanAsync("process", VeryLongPause, byARouter),
        LoadStandingStillAsync(VeryLongPause, byARouter),
        WatchIntoAPipeAsync("reader", VeryLongPause, byARouter),
        WatchIntoAPipeAsync("process", VeryLongPause, byARouter),
    ]));

    /// <summary>A load whose process stood still for longer than it waits for an acknowledgement gave up at once.</summary>
    [LongToolTheory("etcd", "etcdctl")]
    [InlineData(false)]
    [InlineData(true)]
    public Task Load_OfKv_WhoseProcessStandsStillForMoreThanAMinute_WritesEverything(bool byARouter) => LoadStandingStillAsync(LongPause, byARouter);

    /// <summary>A scan and a load whose peer stands still fail over if there is another, and otherwise wait for it as long as they may.</summary>
    [ToolTheory("etcd", "etcdctl")]
    [InlineData(false)]
    [InlineData(true)]
    public async Task ScanAndLoad_WhoseNodeStandsStill_GoOn(bool byARouter)
    {
        await using var cluster = await FaultCluster.StartAsync(nodes: 3);
        var address = byARouter ? cluster.StartRouter() : cluster.DirectEndpoints[0];
        await LoadAsync(address, byARouter);
        await using var client = new KvClient(
            new KvClientOptions { Endpoints = byARouter ? [address] : cluster.DirectEndpoints, Gateway = byARouter, Timeout = Eventually.Limit });
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

    /// <summary>The watch's stream is ended when nothing was read for a minute, and goes on after its position.</summary>
    [LongToolTheory("etcd", "etcdctl")]
    [InlineData(false)]
    [InlineData(true)]
    public async Task Watch_WhoseReaderPausesForMoreThanAMinute_MissesNothing(bool byARouter)
    {
        // Together more than what is on the way to a reader, and less than what a journal keeps for one.
        const int changes = 500;
        const int bytes = 100 << 10;
        await using var cluster = await FaultCluster.StartAsync(nodes: 1);
        var address = byARouter ? cluster.StartRouter() : cluster.DirectEndpoints[0];
        await using var client = new KvClient(new KvClientOptions { Endpoints = [address], Gateway = byARouter, Timeout = Eventually.Limit });
        using var limit = new CancellationTokenSource(LongPause + Eventually.Limit);
        var (seen, hasPaused) = (0, false);
        await foreach (var message in client.WatchAsync(new KvWatch { Prefix = "watched/"u8.ToArray() }, limit.Token))
        {
            foreach (var happened in message.Events)
                Assert.Equal(Watched(seen++), happened.Key.ToArray());
            if (seen == changes)
                break;
            if (hasPaused)
                continue;
            hasPaused = true;
            for (var number = 0; number < changes; number++)
                await client.PutAsync(Watched(number), new byte[bytes]);
            await Task.Delay(LongPause);
        }
        Assert.Equal(changes, seen);
    }

    [ToolTheory("etcd", "etcdctl")]
    [InlineData(false)]
    [InlineData(true)]
    public Task Watch_OfKv_IntoAPipeThatNobodyReadsForSeconds_PrintsEverything(bool byARouter) => WatchIntoAPipeAsync("reader", ShortPause, byARouter);

    /// <summary>The node ends a stream that nobody reads for a minute, and the watch goes on after its position.</summary>
    [LongToolTheory("etcd", "etcdctl")]
    [InlineData(false)]
    [InlineData(true)]
    public Task Watch_OfKv_IntoAPipeThatNobodyReadsForMoreThanAMinute_PrintsEverything(bool byARouter) => WatchIntoAPipeAsync("reader", LongPause, byARouter);

    /// <summary>Each page is a call of its own, from the state at its moment.</summary>
    [ToolTheory("etcd", "etcdctl")]
    [InlineData("reader", false)]
    [InlineData("reader", true)]
    [InlineData("node", false)]
    [InlineData("node", true)]
    public async Task SetScan_WhoseReaderOrNodePauses_GoesOnBehindItsLastMember(string pauses, bool byARouter)
    {
        // Three pages.
        const int members = 25_000;
        var set = "set"u8.ToArray();
        await using var cluster = await FaultCluster.StartAsync();
        IReadOnlyList<string> endpoints = byARouter ? [cluster.StartRouter()] : cluster.DirectEndpoints;
        await using var client = new KvClient(new KvClientOptions { Endpoints = endpoints, Gateway = byARouter, Timeout = Eventually.Limit });
        foreach (var part in Enumerable.Range(0, members).Chunk(10_000))
            await client.Sets.AddAsync(set, part.Select(static number => (KvKey)Member(number)));
        var leader = cluster.Node(await cluster.LeaderAsync());
        var seen = 0;
        await foreach (var member in client.Sets.ScanAsync(set))
        {
            if (seen == 0)
            {
                await client.Sets.RemoveAsync(set, [Member(members - 1)]);
                await client.Sets.AddAsync(set, [Member(members)]);
                if (pauses == "reader")
                    await Task.Delay(ShortPause);
                else
                    leader.Pause();
            }
            Assert.Equal(Member(seen == members - 1 ? members : seen), member.ToArray());
            seen++;
        }
        if (pauses == "node")
            leader.Resume();
        Assert.Equal(members, seen);
    }

    [LongToolTheory("etcd", "etcdctl")]
    [InlineData(false)]
    [InlineData(true)]
    public async Task List_WhoseReaderPausesForMoreThanAMinute_GoesOnInANewerSnapshotIfItMay(bool byARouter)
    {
        await using var cluster = await FaultCluster.StartAsync(nodes: 1);
        var address = byARouter ? cluster.StartRouter() : cluster.DirectEndpoints[0];
        await LoadAsync(address, byARouter);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [address], Gateway = byARouter, Timeout = Eventually.Limit });
        var list = new KvList { Prefix = "small/"u8.ToArray(), KeysOnly = true, Limit = 10_000 };
        var first = await client.ListAsync(list);
        await client.PutAsync("after", "the first page");
        await Task.Delay(ShortPause);
        var page = await client.ListAsync(list, first.NextToken);
        Assert.Equal(first.Position.Etag, page.Position.Etag);
        await Task.Delay(LongPause);
        Assert.Equal("SNAPSHOT_TOO_OLD", (await Assert.ThrowsAnyAsync<KvException>(async () => await client.ListAsync(list, page.NextToken))).Reason);
        var seen = first.Entries.Count + page.Entries.Count;
        while (page.NextToken is not null)
        {
            page = await client.ListAsync(list with { NewerSnapshots = true }, page.NextToken);
            seen += page.Entries.Count;
        }
        Assert.Equal(SmallKeys, seen);
        Assert.True(page.Position.Etag > first.Position.Etag, $"{page.Position.Etag} after {first.Position.Etag}");
    }

    [ToolFact("etcd", "etcdctl")]
    public async Task ScanAndWatch_WhoseOnlyRouterStandsStillForSeconds_GoOn()
    {
        await using var cluster = await FaultCluster.StartAsync(nodes: 1);
        var address = cluster.StartRouter();
        await LoadBigAsync(address);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [address], Gateway = true, Timeout = Eventually.Limit });
        await using var writer = new KvClient(new KvClientOptions { Endpoints = cluster.DirectEndpoints, Timeout = Eventually.Limit });
        using var limit = new CancellationTokenSource(Eventually.Limit);
        await using var watch = client.WatchAsync(new KvWatch { Prefix = "watched/"u8.ToArray() }, limit.Token).GetAsyncEnumerator();
        Assert.True(await watch.MoveNextAsync());
        var (seen, goesOn) = (0, Task.CompletedTask);
        await foreach (var _ in client.ScanAsync(new KvScan { Prefix = "big/"u8.ToArray() }))
        {
            if (++seen > 1)
                continue;
            Signals.Pause(cluster.RouterIds[0]);
            goesOn = GoOnLaterAsync();
        }
        await goesOn;
        Assert.Equal(BigValues, seen);
        await AssertSeesAsync(watch, Watched(0));

        async Task GoOnLaterAsync()
        {
            await writer.PutAsync(Watched(0), default);
            await Task.Delay(ShortPause);
            Signals.Resume(cluster.RouterIds[0]);
        }
    }

    [ToolFact("etcd", "etcdctl")]
    public async Task Scan_WhoseOnlyRouterStandsStillForLongerThanItsTimeout_SaysWhereItGoesOn()
    {
        await using var cluster = await FaultCluster.StartAsync(nodes: 1);
        var address = cluster.StartRouter();
        await LoadBigAsync(address);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [address], Gateway = true });
        var (last, message) = ("", "");
        // Again if the machine stalls for the client's timeout before the first page.
        await Eventually.TrueAsync(
            async () =>
            {
                var failure = await Assert.ThrowsAsync<KvUnavailableException>(async () =>
                {
                    await foreach (var entry in client.ScanAsync(new KvScan { Prefix = "big/"u8.ToArray() }))
                    {
                        if (last.Length == 0)
                            Signals.Pause(cluster.RouterIds[0]);
                        last = Encoding.UTF8.GetString(entry.Key.Span);
                    }
                });
                message = failure.Message;
                return last.Length > 0;
            },
            () => $"the scan returns a page: {message}");
        Assert.Contains($"up to the key \"{last}\"", message, StringComparison.Ordinal);
        Signals.Resume(cluster.RouterIds[0]);
        await using var later = new KvClient(new KvClientOptions { Endpoints = [address], Gateway = true, Timeout = Eventually.Limit });
        var rest = await later.ScanAsync(new KvScan { Prefix = "big/"u8.ToArray(), Start = Encoding.UTF8.GetBytes(last + '\0') }).ToListAsync();
        Assert.Equal(
            Enumerable.Range(0, BigValues).Select(Key).SkipWhile(key => Encoding.UTF8.GetString(key) != last).Skip(1),
            rest.Select(static entry => entry.Key.ToArray()));
    }

    /// <summary>Calls of the load end without an answer meanwhile, and are made again under their identities. Each read has parts in two shards.</summary>
    [ToolFact("etcd", "etcdctl")]
    public async Task BulkLoadAndGetMany_WhoseOnlyRouterStandsStillForSeconds_GoOn()
    {
        const int entries = 8_000;
        await using var cluster = await FaultCluster.StartAsync(nodes: 1, splitAt: "load/00004000");
        var address = cluster.StartRouter();
        // Its calls may take less than the pause.
        await using var impatient = new KvClient(new KvClientOptions { Endpoints = [address], Gateway = true, Timeout = ShortPause / 2 });
        await using var client = new KvClient(new KvClientOptions { Endpoints = [address], Gateway = true, Timeout = Eventually.Limit });
        await using var load = impatient.BulkLoad(giveUpAfter: Eventually.Limit);
        await AddAsync(load, 0, entries / 2);
        await load.FlushAsync();
        KvKey[] many = [Loaded(0), Loaded(1), Loaded(entries - 1)];
        using var isOver = new CancellationTokenSource();
        var reading = ReadAsync();
        Signals.Pause(cluster.RouterIds[0]);
        var goesOn = GoOnLaterAsync();
        // Fewer batches than may be under way at once.
        await AddAsync(load, entries / 2, entries);
        await load.FlushAsync();
        await goesOn;
        await isOver.CancelAsync();
        await reading;
        Assert.Equal(entries, load.AcknowledgedThrough);
        Assert.Equal(entries, await client.CountAsync("load/"u8.ToArray()));
        Assert.True((await client.GetManyAsync(many))[^1].Found);

        async Task ReadAsync()
        {
            while (!isOver.IsCancellationRequested)
            {
                var found = await client.GetManyAsync(many);
                Assert.True(found[0].Found && found[1].Found);
            }
        }

        async Task GoOnLaterAsync()
        {
            await Task.Delay(ShortPause);
            Signals.Resume(cluster.RouterIds[0]);
        }
    }

    [LongToolFact("etcd", "etcdctl")]
    public async Task BulkLoad_WhoseOnlyRouterStandsStillForLongerThanItWaits_SaysWhereItGoesOn()
    {
        const int entries = 8_000;
        await using var cluster = await FaultCluster.StartAsync(nodes: 1);
        var address = cluster.StartRouter();
        await using var client = new KvClient(new KvClientOptions { Endpoints = [address], Gateway = true });
        await using var load = client.BulkLoad();
        await AddAsync(load, 0, entries / 2);
        await load.FlushAsync();
        Signals.Pause(cluster.RouterIds[0]);
        await Assert.ThrowsAnyAsync<KvException>(async () =>
        {
            await AddAsync(load, entries / 2, entries);
            await load.FlushAsync();
        });
        Assert.Equal(entries / 2, load.AcknowledgedThrough);
        Signals.Resume(cluster.RouterIds[0]);
        await using var later = new KvClient(new KvClientOptions { Endpoints = [address], Gateway = true, Timeout = Eventually.Limit });
        await using var rest = later.BulkLoad(giveUpAfter: Eventually.Limit);
        await AddAsync(rest, (int)load.AcknowledgedThrough, entries);
        await rest.FlushAsync();
        Assert.Equal(entries, await later.CountAsync("load/"u8.ToArray()));
    }

    [ToolFact("etcd", "etcdctl")]
    public async Task ShortCalls_WhoseOnlyRouterStandsStillForLongerThanTheirTimeout_SayWhatBecameOfThem()
    {
        await using var cluster = await FaultCluster.StartAsync(nodes: 1);
        var address = cluster.StartRouter();
        await using var client = new KvClient(new KvClientOptions { Endpoints = [address], Gateway = true, Timeout = Eventually.Limit });
        await client.PutAsync("key", "value");
        await using var impatient = new KvClient(new KvClientOptions { Endpoints = [address], Gateway = true, Timeout = ShortPause / 2 });
        // Until it has a connection and a session.
        await Eventually.TrueAsync(async () => await IsPutAsync(), "the client with little time is served");
        Signals.Pause(cluster.RouterIds[0]);
        var read = await Assert.ThrowsAnyAsync<KvException>(async () => await impatient.GetManyAsync(["key"u8.ToArray(), "other"u8.ToArray()]));
        var change = await Assert.ThrowsAnyAsync<KvException>(async () => await impatient.PutAsync("key", "changed"));
        Signals.Resume(cluster.RouterIds[0]);
        Assert.Contains(read.Reason, (string[])["DEADLINE_PASSED", "NO_LEADER"]);
        Assert.Equal(ChangeOutcome.NotApplied, read.Outcome);
        Assert.Contains(change.Reason, (string[])["DEADLINE_PASSED", "NO_LEADER", "OUTCOME_UNKNOWN"]);
        Assert.Equal(change.Reason == "OUTCOME_UNKNOWN" ? ChangeOutcome.Unknown : ChangeOutcome.NotApplied, change.Outcome);
        Assert.True((await client.GetAsync("key")).Found);

        async Task<bool> IsPutAsync()
        {
            try
            {
                await impatient.PutAsync("other", "value");
                return true;
            }
            catch (KvException)
            {
                return false;
            }
        }
    }

    [LongToolFact("etcd", "etcdctl")]
    public async Task Watch_WhoseOnlyRouterStandsStillForMoreThanAMinute_EndsWithATokenThatContinues()
    {
        await using var cluster = await FaultCluster.StartAsync(nodes: 1);
        var address = cluster.StartRouter();
        // Less than the minute for which a watch waits.
        await using var client = new KvClient(new KvClientOptions { Endpoints = [address], Gateway = true, Timeout = TimeSpan.FromSeconds(30) });
        await using var writer = new KvClient(new KvClientOptions { Endpoints = cluster.DirectEndpoints, Timeout = Eventually.Limit });
        using var limit = new CancellationTokenSource(LongPause + Eventually.Limit);
        string? token = null;
        await Assert.ThrowsAsync<KvUnavailableException>(async () =>
        {
            await foreach (var message in client.WatchAsync(new KvWatch { Prefix = "watched/"u8.ToArray() }, limit.Token))
            {
                if (token is null && message.Token is not null)
                    Signals.Pause(cluster.RouterIds[0]);
                token = message.Token ?? token;
            }
        });
        await writer.PutAsync(Watched(0), default);
        Signals.Resume(cluster.RouterIds[0]);
        await using var watch = client.WatchAsync(new KvWatch { Prefix = "watched/"u8.ToArray(), After = token }, limit.Token).GetAsyncEnumerator();
        Assert.True(await watch.MoveNextAsync());
        await AssertSeesAsync(watch, Watched(0));
    }

    private static async Task ScanAsync(string pauses, TimeSpan pause, bool byARouter)
    {
        await using var cluster = await FaultCluster.StartAsync(nodes: 1);
        var address = byARouter ? cluster.StartRouter() : cluster.DirectEndpoints[0];
        await LoadAsync(address, byARouter);
        using var kv = Process.Start(new ProcessStartInfo(
            Tools.Built("kv", "KvCluster.Cli"), ["scan", "small/", "--endpoint", address, .. byARouter ? (string[])["--gateway"] : []])
        {
            RedirectStandardOutput = true,
            RedirectStandardError = true,
        })!;
        Assert.NotNull(await kv.StandardOutput.ReadLineAsync());
        if (pauses == "process")
            Signals.Pause(kv.Id);
        await Task.Delay(pause);
        if (pauses == "process")
            Signals.Resume(kv.Id);
        var lines = 1;
        var errors = kv.StandardError.ReadToEndAsync();
        while (await kv.StandardOutput.ReadLineAsync().WaitAsync(Eventually.Limit) is not null)
            lines++;
        await kv.WaitForExitAsync().WaitAsync(Eventually.Limit);
        Assert.Equal((SmallKeys, 0, ""), (lines, kv.ExitCode, await errors));
    }

    private static async Task LoadStandingStillAsync(TimeSpan pause, bool byARouter)
    {
        await using var cluster = await FaultCluster.StartAsync(nodes: 1);
        var address = byARouter ? cluster.StartRouter() : cluster.DirectEndpoints[0];
        using var kv = Process.Start(new ProcessStartInfo(
            Tools.Built("kv", "KvCluster.Cli"), ["load", "-", "--endpoint", address, .. byARouter ? (string[])["--gateway"] : []])
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
                await Task.Delay(pause);
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

    // More is changed than what is on the way to a reader, and less than what a journal keeps for one.
    private static async Task WatchIntoAPipeAsync(string pauses, TimeSpan pause, bool byARouter)
    {
        const int changes = 500;
        await using var cluster = await FaultCluster.StartAsync(nodes: 1);
        var address = byARouter ? cluster.StartRouter() : cluster.DirectEndpoints[0];
        await using var client = new KvClient(new KvClientOptions { Endpoints = [address], Gateway = byARouter, Timeout = Eventually.Limit });
        await client.PutAsync(Watched(0), default);
        string[] arguments = ["watch", "watched/", "--initial", "--count", (changes + 1)
            .ToString(CultureInfo.InvariantCulture), "--endpoint", address, .. byARouter ? (string[])["--gateway"] : []];
        using var kv = Process.Start(
            new ProcessStartInfo(Tools.Built("kv", "KvCluster.Cli"), arguments) { RedirectStandardOutput = true, RedirectStandardError = true })!;
        var value = new byte[100 << 10];
        value.AsSpan().Fill((byte)'v');
        var seen = 0;
        while (await kv.StandardOutput.ReadLineAsync().WaitAsync(Eventually.Limit) is { } line)
        {
            Assert.StartsWith(string.Create(CultureInfo.InvariantCulture, $"put\t{Encoding.UTF8.GetString(Watched(seen))}\t"), line, StringComparison.Ordinal);
            if (seen++ > 0)
                continue;
            if (pauses == "process")
                Signals.Pause(kv.Id);
            for (var number = 1; number <= changes; number++)
                await client.PutAsync(Watched(number), value);
            await Task.Delay(pause);
            if (pauses == "process")
                Signals.Resume(kv.Id);
        }
        await kv.WaitForExitAsync().WaitAsync(Eventually.Limit);
        Assert.Equal((changes + 1, 0, ""), (seen, kv.ExitCode, await kv.StandardError.ReadToEndAsync()));
    }

    private static async Task AssertSeesAsync(IAsyncEnumerator<KvWatchMessage> watch, byte[] key)
    {
        while (watch.Current.Events.Count == 0)
            Assert.True(await watch.MoveNextAsync());
        Assert.Equal(key, watch.Current.Events[0].Key.ToArray());
    }

    private static async Task LoadBigAsync(string router)
    {
        await using var loader = new KvClient(new KvClientOptions { Endpoints = [router], Gateway = true, Timeout = Eventually.Limit });
        for (var number = 0; number < BigValues; number++)
            await loader.PutAsync(Key(number), new byte[BigBytes]);
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
        using var call = new Kv.KvClient(channel.Calls()).Scan(new ScanRequest { Prefix = ByteString.CopyFromUtf8("big/") });
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

    private static async Task AddAsync(KvBulkLoad load, int first, int end)
    {
        for (var number = first; number < end; number++)
            await load.AddAsync(Loaded(number), "value"u8.ToArray());
    }

    private static byte[] Loaded(int number) => Encoding.UTF8.GetBytes(string.Create(CultureInfo.InvariantCulture, $"load/{number:d8}"));

    private static byte[] Member(int number) => Encoding.UTF8.GetBytes(string.Create(CultureInfo.InvariantCulture, $"member-{number:d6}"));

    private static byte[] Watched(int number) => Encoding.UTF8.GetBytes(string.Create(CultureInfo.InvariantCulture, $"watched/{number:d4}"));

    private static byte[] Key(int number) => Encoding.UTF8.GetBytes(string.Create(CultureInfo.InvariantCulture, $"big/{number:d2}"));
}
