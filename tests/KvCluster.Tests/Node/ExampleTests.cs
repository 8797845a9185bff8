using System.Globalization;
using KvCluster.Client;
using KvCluster.Examples;
using KvCluster.Testing;
using KvCluster.Tests.Client;
using Microsoft.Extensions.Configuration;
using Microsoft.Extensions.DependencyInjection;

namespace KvCluster.Tests.Node;

/// <summary>The programs of client/examples count exactly while each node dies in turn, the leader among them.</summary>
[Trait("Turn", "2")]
public sealed class ExampleTests
{
    private const int CallsOfARound = 20;

    [Fact]
    public async Task Inventory_SellsWhatThereIs_AndNoMore_WhileTheLeaderDies()
    {
        const int apples = 50, pears = 60;
        await using var cluster = await StartAsync();
        await using var store = Connect(cluster);
        var stock = new Stock(store);
        Assert.Equal(apples, await stock.AddAsync("apple", apples));
        Assert.Equal(pears, await stock.AddAsync("pear", pears));
        var taken = 0;
        await WhileEachNodeDiesAsync(cluster, async (number, stop) =>
        {
            var goods = new Dictionary<string, long> { ["apple"] = 1, ["pear"] = 1 };
            var isTaken = await stock.OrderAsync($"{number}", goods, stop);
            if (isTaken)
                Interlocked.Increment(ref taken);
            // Whoever repeats an order that was taken does not get its goods twice.
            Assert.Equal(isTaken, await stock.OrderAsync($"{number}", goods, stop));
        });
        Assert.Equal(apples, taken);
        Assert.Equal(apples, await stock.CountOrdersAsync());
        var left = await stock.ListAsync().ToListAsync();
        Assert.Equal("0 apple, 10 pear", string.Join(", ", left.Select(static good => $"{good.Count} {good.Good}")));
    }

    [Fact]
    public async Task JobQueue_WritesOneInvoiceForEachOrder_WhileTheLeaderDies()
    {
        await using var cluster = await StartAsync();
        await using var store = Connect(cluster);
        await using var other = Connect(cluster);
        using var ended = new CancellationTokenSource();
        Invoices[] processes = [new(store), new(other)];
        var working = processes.Select(process => process.WorkAsync(parallel: 2, ended.Token)).ToArray();
        await WhileEachNodeDiesAsync(cluster, async (number, stop) =>
        {
            // Placed twice, as when the first answer was lost.
            await processes[0].OrderAsync($"{number}", number * 100, stop);
            await processes[1].OrderAsync($"{number}", number * 100, stop);
        });
        await Eventually.TrueAsync(
            async () => await processes[0].CountWaitingAsync() == 0 || Array.Exists(working, static one => one.IsCompleted), "all invoices are written");
        await ended.CancelAsync();
        foreach (var one in working)
            await Assert.ThrowsAnyAsync<OperationCanceledException>(() => one);
        var invoices = await processes[0].ListAsync().ToListAsync();
        var orders = Enumerable.Range(0, 3 * CallsOfARound).ToList();
        Assert.Equal(orders.Select(static order => order + 1L), invoices.Select(static invoice => invoice.Number));
        Assert.Equal(
            orders.Select(static order => $"order {order}: {order * 100} cents").Order(StringComparer.Ordinal),
            invoices.Select(static invoice => invoice.Text).Order(StringComparer.Ordinal));
    }

    [Fact]
    public async Task Settings_AreFollowedByTheOneThatLeads_WhileTheLeadersOfTheShardAndOfTheElectionGo()
    {
        // Far more than are written one or two at a time before the test has changed the setting.
        const int letters = 20_000;
        await using var cluster = await StartAsync();
        await using var store = Connect(cluster);
        var settings = new ConfigurationBuilder()
            .AddKvCluster(options => (options.Client, options.Prefix, options.StartTimeout) = (store, Newsletter.SettingsPrefix, Eventually.Limit)).Build();
        using var provider = settings as IDisposable;
        using var left = new CancellationTokenSource();
        using var right = new CancellationTokenSource();
        var newsletter = new Newsletter(store, settings);
        var running = (Left: newsletter.RunAsync("left", letters, left.Token), Right: newsletter.RunAsync("right", letters, right.Token));
        await WhileEachNodeDiesAsync(cluster, async (_, stop) =>
        {
            var before = await newsletter.CountAsync(stop);
            await Eventually.TrueAsync(async () => await newsletter.CountAsync(stop) > before, "letters are written");
        });
        await store.PutAsync(Newsletter.SettingsPrefix + "Batch", "2");
        await Eventually.TrueAsync(
            async () => (await WrittenAsync()).Exists(static letter => letter.StartsWith("of 2 by ", StringComparison.Ordinal)), "the setting is followed");

        string? leader = null;
        await Eventually.TrueAsync(async () => (leader = await newsletter.FindLeaderAsync()) is not null, "one leads");
        var (ended, former, next) = leader == "left" ? (left, running.Left, running.Right) : (right, running.Right, running.Left);
        await ended.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => former);
        await store.PutAsync(Newsletter.SettingsPrefix + "Batch", "1000");
        await next;

        Assert.Equal(letters, await newsletter.CountAsync());
        // Letters that name a batch are as many as whole batches have, so none was written by two.
        Assert.All(
            (await WrittenAsync()).GroupBy(static letter => letter),
            static batches => Assert.Equal(0, batches.Count() % int.Parse(batches.Key.Split(' ')[1], CultureInfo.InvariantCulture)));

        async Task<List<string>> WrittenAsync() =>
            await store.ScanAsync(new KvScan { Prefix = "newsletter/letters/" }).Select(static letter => letter.Value.ToUtf8String()).ToListAsync();
    }

    [Fact]
    public async Task WebCache_ShowsWhatEveryProcessHasSold_WhileTheLeaderDies()
    {
        await using var cluster = await StartAsync();
        await using var left = await ProgramHost.StartAsync(cluster.Endpoints, static builder => Shop.AddTo(builder.Services), Shop.MapTo);
        await using var right = await ProgramHost.StartAsync(cluster.Endpoints, static builder => Shop.AddTo(builder.Services), Shop.MapTo);
        await WhileEachNodeDiesAsync(cluster, async (number, stop) =>
        {
            var program = number % 2 == 0 ? left : right;
            using var answer = await program.Http.PostAsync(new Uri("/products/pear", UriKind.Relative), content: null, stop);
            answer.EnsureSuccessStatusCode();
            await program.GetAsync("/products/pear");
        });
        var sold = $"pear: {3 * CallsOfARound} sold";
        await Eventually.TrueAsync(async () => await left.GetAsync("/products/pear") == sold, "one process shows what was sold");
        await Eventually.TrueAsync(async () => await right.GetAsync("/products/pear") == sold, "the other one does");
        // From then on the page comes from the cache.
        var shop = left.Services.GetRequiredService<Shop>();
        await Eventually.TrueAsync(
            async () =>
            {
                var made = shop.Made;
                await left.GetAsync("/products/pear");
                return shop.Made == made;
            },
            "the page is not made again");
    }

    private static Task<KvTestCluster> StartAsync() => KvTestCluster.StartAsync(new KvTestClusterOptions { Nodes = 3 });

    private static KvClient Connect(KvTestCluster cluster) => cluster.Connect(static options => options.Timeout = Eventually.Limit);

    /// <summary>Makes calls, while nodes are stopped without handing over and started again, one after the other, so that the leader is among them.</summary>
    /// <param name="cluster">Has three nodes.</param>
    /// <param name="call">Is given the number of the call, from 0, and is made by four at a time.</param>
    private static async Task WhileEachNodeDiesAsync(KvTestCluster cluster, Func<int, CancellationToken, ValueTask> call)
    {
        for (var round = 0; round < 3; round++)
        {
            var calls = Parallel.ForEachAsync(
                Enumerable.Range(round * CallsOfARound, CallsOfARound), new ParallelOptions { MaxDegreeOfParallelism = 4 }, call);
            await cluster.StopNodeAsync(round + 1);
            await calls;
            await cluster.StartNodeAsync(round + 1);
        }
    }
}
