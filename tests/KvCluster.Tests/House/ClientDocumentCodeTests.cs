using System.Collections.Concurrent;
using System.Security.Cryptography.X509Certificates;
using System.Text.Json.Serialization;
using KvCluster.Client;
using KvCluster.Testing;
using FakeTimeProvider = KvCluster.Shared.ManualTime;

namespace KvCluster.Tests.House;

/// <summary>
/// The C# of the pages of the client library, of its recipes and of its packages for tests, over a client in memory where no cluster is needed.
/// <see cref="DocumentCodeTests"/> compares it with the pages.
/// </summary>
public sealed partial class ClientDocumentCodeTests
{
    /// <summary>The first lines, which are also those of README.md.</summary>
    [Fact]
    public async Task Use_DoesWhatItSays()
    {
        IKvClient store = new InMemoryKvClient();
        await store.PutAsync("orders/2026/11/0001", "three apples");
        var order = await store.GetAsync("orders/2026/11/0001");
        await store.PutAsync("orders/2026/11/0001", "four apples", KvCondition.EtagEquals(order.Etag)); // only if nobody changed it
        await store.WriteAsync(new KvWrite() // all or nothing
            .Put("orders/2026/11/0002", "two pears")
            .Delete("orders/2026/10/0417"));
        await foreach (var entry in store.ScanAsync(new KvScan { Prefix = "orders/2026/11/" }))
            Console.WriteLine($"{entry.Key}: {entry.Value}");
        Assert.Equal("four apples", (await store.GetAsync("orders/2026/11/0001")).Value.ToUtf8String());
        Assert.Equal(2, await store.CountAsync("orders/"));
    }

    [Fact]
    public async Task ChangesOnConditions_DoWhatTheySay()
    {
        IKvClient store = new InMemoryKvClient();
        await store.PutAsync("config", "v");
        var read = await store.GetAsync("config");
        var (etag, config) = (read.Etag, read.Value);
        while (true)
        {
            var put = await store.TryPutAsync("config", Changed(config), new KvPutOptions
            {
                Condition = KvCondition.EtagEquals(etag), // of a key that does not exist: all zero, which means that it must not exist
                WithPresentValue = true,
            });
            if (put.Succeeded)
                break;
            (etag, config) = (put.Failed.Etag, put.Failed.Value);
        }
        Assert.Equal("v, changed", (await store.GetAsync("config")).Value.ToUtf8String());

        static KvValue Changed(KvValue old) => $"{old}, changed";
    }

    [Fact]
    public async Task OptionsOfACall_DoWhatTheySay()
    {
        IKvClient store = new InMemoryKvClient();
        await store.GetAsync("config", KvReadMode.Stale); // a read mode or a condition can be passed as it is
        await store.GetAsync("config", new KvGetOptions { Read = KvReadMode.Replica, Timeout = TimeSpan.FromSeconds(1) });
        await store.PutAsync("config", "v2", new KvPutOptions { TimeToLive = TimeSpan.FromHours(1), NoRetry = true });
        Assert.NotNull((await store.GetAsync("config", new KvGetOptions { WithLife = true })).Life.Left);
    }

    /// <summary>Nothing is asked for a certificate or a token before a call, and nobody is called here.</summary>
    [Fact]
    public async Task Credentials_AreTaken()
    {
        var (authorities, certificates, tokens) = (new X509Certificate2Collection(), new OwnCertificates(), new Tokens());
        await using var store = new KvClient(new KvClientOptions
        {
            Endpoints = ["https://kv-0:7400"],
            Tls = new KvTlsOptions { Authorities = authorities, CertificateSource = () => certificates.Current },
            Authorization = async (address, cancellation) => $"Bearer {await tokens.GetAsync(cancellation)}",
        });
    }

    [Fact]
    public async Task Testing_DoesWhatItSays()
    {
        var store = new InMemoryKvClient(); // an IKvClient with the semantics of the cluster
        await new Shop(store).OrderAsync("two pears");
        Assert.True((await store.GetAsync("orders/1")).Found);
    }

    [Fact]
    public async Task TestingWithAClock_DoesWhatItSays()
    {
        var time = new FakeTimeProvider(); // of Microsoft.Extensions.TimeProvider.Testing, or any TimeProvider
        var store = new InMemoryKvClient(new InMemoryKvOptions { Time = time });
        await new Shop(store).ReserveAsync("pears", TimeSpan.FromMinutes(10));
        time.Advance(TimeSpan.FromMinutes(11));
        Assert.False((await store.GetAsync("reserved/pears")).Found);
    }

    [Fact]
    [Trait("Turn", "2")]
    public async Task TestCluster_DoesWhatItSays()
    {
        await using var cluster = await KvTestCluster.StartAsync(new KvTestClusterOptions { Nodes = 3 });
        await using var store = cluster.Connect(static options => options.Timeout = Eventually.Limit);
        await store.PutAsync("orders/1", "two pears");
        await cluster.StopNodeAsync(1); // as if its process died
        Assert.True((await store.GetAsync("orders/1")).Found);
    }

    [Fact]
    public async Task Keys_DoWhatTheySay()
    {
        KvKey key = "orders/2026/11/0001";
        KvValue visits = KvValue.FromInt64(17); // the text "17", which increments read
        Console.WriteLine($"{key.ToUtf8String()} has {visits.ToInt64()}");
        Assert.Equal("17", visits.ToUtf8String());

        const int id = 17;
        var order = KvKey.Of("orders", 2026, 11, id);

        // All orders of November, and nothing else:
        var november = new KvScan { Prefix = KvKey.Of("orders", 2026, 11) };

        // From March on, until the end of May:
        var spring = new KvScan { Start = KvKey.Of("orders", 2026, 3), End = KvKey.Of("orders", 2026, 5).PrefixEnd };

        // Back to the parts. False for a key that is not composite.
        if (order.TryRead(out var parts) && parts is [_, { Kind: KvKeyPartKind.Number } year, ..])
            Console.WriteLine(year.ToInt32());
        Assert.Equal(2026, parts?[1].ToInt32());

        IKvClient store = new InMemoryKvClient();
        var may = KvKey.Of("orders", 2026, 5, id);
        foreach (var other in (KvKey[])[order, may, KvKey.Of("orders", 2026, 6, id)])
            await store.PutAsync(other, "two pears");
        Assert.Equal(order, Assert.Single(await store.ScanAsync(november).ToListAsync()).Key);
        Assert.Equal(may, Assert.Single(await store.ScanAsync(spring).ToListAsync()).Key);
    }

    [Fact]
    public async Task ValuesOfAType_DoWhatTheySay()
    {
        IKvClient store = new InMemoryKvClient();
        const int id = 17;
        var orders = new KvTable<Order>(store, KvKey.Of("orders"), OrderJson.Default.Order);
        await orders.PutAsync(KvKey.Of(2026, 11, id), new Order("pears", 2));
        await foreach (var (key, order, _) in orders.ScanAsync(new KvScan { Prefix = KvKey.Of(2026, 11) }))
            Console.WriteLine($"{order!.Count} {order.What}");
        Assert.Equal("""{"What":"pears","Count":2}""", (await store.GetAsync(KvKey.Of("orders", 2026, 11, id))).Value.ToUtf8String());
    }

    [Fact]
    public async Task Update_DoesWhatItSays()
    {
        IKvClient store = new InMemoryKvClient();
        await store.UpdateAsync("sold/pears", old => KvValue.FromInt64((old?.ToInt64() ?? 0) + 5));
        Assert.Equal(5, (await store.GetAsync("sold/pears")).Value.ToInt64());

        await new KvTable<Stock>(store, "stock/", StockJson.Default.Stock).PutAsync("pears", new Stock(3));
        var stock = new KvTable<Stock>(store, "stock/", StockJson.Default.Stock);
        await stock.UpdateAsync("pears", old => old is { Count: > 0 } ? old with { Count = old.Count - 1 } : old);
        Assert.Equal(2, (await stock.GetAsync("pears")).Value?.Count);
    }

    [Fact]
    public async Task LiveSession_DoesWhatItSays()
    {
        IKvClient store = new InMemoryKvClient();
        {
            await using var session = await KvLiveSession.OpenAsync(store, "workers/", TimeSpan.FromSeconds(10));
            await store.PutAsync("workers/7", "http://10.0.0.7:8080", new KvPutOptions { Owner = session.Session });
            session.Lost.Register(() => Console.WriteLine("Others do not see this worker any more."));
            Assert.True((await store.GetAsync("workers/7")).Found);
        }
        Assert.False((await store.GetAsync("workers/7")).Found);
    }

    [Fact]
    public async Task Lock_DoesWhatItSays()
    {
        IKvClient store = new InMemoryKvClient();
        var (printer, invoices) = (new Printer(), "17, 18");
        await using var held = await KvLock.AcquireAsync(store, "billing/lock", new KvLockOptions { Holder = Environment.MachineName });

        // Keys of the same shard: exact. A former holder is refused with KvConditionFailedException.
        await store.WriteAsync(new KvWrite().If(held.Held).Put("billing/last", "2026-11"));

        // Anything else: the other side remembers the greatest etag that it has seen, and refuses less.
        await printer.PrintAsync(invoices, held.FencingEtag);
        Assert.Equal("2026-11", (await store.GetAsync("billing/last")).Value.ToUtf8String());
        Assert.Equal("17, 18", printer.Printed);
    }

    [Fact]
    public async Task Election_DoesWhatItSays()
    {
        IKvClient store = new InMemoryKvClient();
        using var stop = new CancellationTokenSource();
        var stopping = stop.Token;
        var watching = WatchAsync(new KvElection(store, "billing/leader"), stopping);
        var ending = Task.Run(async () =>
        {
            await Eventually.TrueAsync(async () => (await store.GetAsync("billing/beat")).Found, "the leader has written");
            await stop.CancelAsync();
        });
        var election = new KvElection(store, "billing/leader");
        await election.RunAsync("http://10.0.0.7:8080", async (leadership, leading) =>
        {
            while (!leading.IsCancellationRequested)
                await store.WriteAsync(new KvWrite().If(leadership.Held).Put("billing/beat", DateTime.UtcNow.ToString("O")));
        }, stopping);
        await ending;
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => watching);
        Assert.Null(await election.FindLeaderAsync());
    }

    [Fact]
    public async Task Cache_DoesWhatItSays()
    {
        IKvClient store = new InMemoryKvClient();
        using var stop = new CancellationTokenSource();
        var stopping = stop.Token;
        await using var settings = new KvCache(store, "settings/");
        var view = await settings.WhenCompleteAsync();
        Console.WriteLine(view.TryGet("settings/limit", out var limit) ? limit.Value : "none");

        var put = await store.PutAsync("settings/limit", "20");
        view = await settings.WaitForAsync(put.Position); // has the change
        Assert.True(view.TryGet("settings/limit", out limit));

        var applied = new ConcurrentQueue<string>();
        var applying = ApplyAllAsync();
        await store.PutAsync("settings/limit", "30");
        await Eventually.TrueAsync(() => applied.Contains("30"), "the change is applied");
        await stop.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => applying);

        async Task ApplyAllAsync()
        {
            while (true)
                Apply(view = await settings.NextAsync(view, stopping)); // whenever something has changed
        }

        void Apply(KvCacheView changed) => applied.Enqueue(changed.Entries["settings/limit"].Value.ToUtf8String());
    }

    [Fact]
    public async Task Queue_DoesWhatItSays()
    {
        IKvClient store = new InMemoryKvClient();
        using var stop = new CancellationTokenSource();
        var stopping = stop.Token;
        var queue = new KvQueue(store, "billing/jobs/");

        // The order and its job in one change, or neither.
        var write = new KvWrite().If(KvCondition.Absent("billing/orders/17")).Put("billing/orders/17", "two pears");
        queue.EnqueueIn(write, "17");
        await store.WriteAsync(write);

        var running = HandleAllAsync();
        await Eventually.TrueAsync(async () => (await store.GetAsync("billing/invoices/17")).Found, "the invoice is there");
        Assert.Equal(0, await queue.CountAsync());
        await stop.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => running);

        async Task HandleAllAsync()
        {
            await queue.RunAsync(async (job, handling) =>
            {
                var invoice = await MakeInvoiceAsync(job.Payload.ToUtf8String(), handling);
                // What the job has made and its completion in one change: exactly once, however often it is handed out.
                await store.WriteAsync(job.CompleteIn(new KvWrite().Put($"billing/invoices/{job.Payload}", invoice)), cancellationToken: handling);
            }, parallel: 4, stopping);
        }

        static Task<string> MakeInvoiceAsync(string order, CancellationToken handling)
        {
            handling.ThrowIfCancellationRequested();
            return Task.FromResult($"for the order {order}");
        }
    }

    private static async Task WatchAsync(KvElection election, CancellationToken stopping)
    {
        await foreach (var leader in election.WatchLeaderAsync(stopping))
            Console.WriteLine(leader is { } who ? $"{who.Candidate} leads" : "nobody leads");
    }

    internal sealed record Order(string What, int Count);

    [JsonSerializable(typeof(Order))]
    internal sealed partial class OrderJson : JsonSerializerContext;

    internal sealed record Stock(int Count);

    [JsonSerializable(typeof(Stock))]
    internal sealed partial class StockJson : JsonSerializerContext;

    private sealed class Shop(IKvClient store)
    {
        public async Task OrderAsync(string what) => await store.PutAsync("orders/1", what);

        public async Task ReserveAsync(string what, TimeSpan time) => await store.PutAsync($"reserved/{what}", "", new KvPutOptions { TimeToLive = time });
    }

    private sealed class Printer
    {
        private Etag _greatest;

        public string Printed { get; private set; } = "";

        public Task PrintAsync(string invoices, Etag fencing)
        {
            if (fencing < _greatest)
                throw new InvalidOperationException("Somebody else prints.");
            (Printed, _greatest) = (invoices, fencing);
            return Task.CompletedTask;
        }
    }

    private sealed class OwnCertificates
    {
        public X509Certificate2? Current { get; }
    }

    private sealed class Tokens
    {
        public ValueTask<string> GetAsync(CancellationToken cancellationToken) =>
            cancellationToken.IsCancellationRequested ? ValueTask.FromCanceled<string>(cancellationToken) : ValueTask.FromResult("token");
    }
}
