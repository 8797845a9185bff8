using KvCluster.Client;
using KvCluster.Tests.Node;
using KvCluster.Tests.Node.Watching;
using Xunit.Abstractions;

namespace KvCluster.Tests.Client;

/// <summary>
/// What a watch tells of removed ranges. It told them as they were removed, beyond what was watched, and everybody who kept entries had to find the keys.
/// </summary>
public sealed class FittedWatchTests(ITestOutputHelper output)
{
    [Fact]
    public async Task RemovedRange_IsToldAsFarAsItIsWatched()
    {
        await using var cluster = await NodeCluster.StartAsync(1, "m"u8.ToArray());
        await using var client = ClientOf(cluster);
        ShardPosition[] before = [(await client.PutAsync("k1", "v")).Position, (await client.PutAsync("z1", "v")).Position];
        await client.DeleteRangeAsync(new KvRange { All = true });

        Assert.Equal(["DeleteRange k l"], await TakeAsync(client, new KvWatch { Prefix = "k", AfterPositions = before }, 1));
        Assert.Equal(["DeleteRange k1 k5"], await TakeAsync(client, new KvWatch { Start = "k1", End = "k5", AfterPositions = before }, 1));
        Assert.Equal(["DeleteRange k m", "DeleteRange m z2"], await TakeAsync(client, new KvWatch { Start = "k", End = "z2", AfterPositions = before }, 2));
        Assert.Equal(["DeleteRange  m", "DeleteRange m "], await TakeAsync(client, new KvWatch { AfterPositions = before }, 2));
        // A watch of one key has no ranges, whether the key was there or not.
        Assert.Equal(["Delete k1 "], await TakeAsync(client, new KvWatch { Prefix = "k1", IsOneKey = true, AfterPositions = before }, 1));
        Assert.Equal(["Delete k "], await TakeAsync(client, new KvWatch { Prefix = "k", IsOneKey = true, AfterPositions = before }, 1));
    }

    [Fact]
    public async Task RemovedRange_ThatIsExpanded_IsTheDeletesOfItsKeys()
    {
        await using var cluster = await NodeCluster.StartAsync(1, "m"u8.ToArray());
        await using var client = ClientOf(cluster);
        foreach (var key in (string[])["a", "k1", "k2", "k4", "n", "z"])
            await client.PutAsync(key, "v");
        await using var messages = client.WatchAsync(new KvWatch { Start = "k", Initial = true, ExpandRanges = true }).GetAsyncEnumerator();
        while (await messages.MoveNextAsync() && !messages.Current.IsInitialComplete)
            Assert.True(messages.Current.IsInitial);
        await client.PutAsync("k3", "v");
        await client.DeleteAsync("k4");
        var removed = await client.DeleteRangeAsync(new KvRange { Start = "a", End = "k3x" });
        await client.DeleteRangeAsync(new KvRange { Start = "k", End = "m" });
        await client.DeleteRangeAsync(new KvRange { Start = "n" });
        var events = new List<KvEvent>();
        while (events.Count < 7 && await messages.MoveNextAsync())
            events.AddRange(messages.Current.Events);
        // Shards are in no order to one another.
        Assert.Equal(
            ["Put k3 ", "Delete k4 ", "Delete k1 ", "Delete k2 ", "Delete k3 "],
            events.Where(static happened => happened.Key.CompareTo("m") < 0).Select(Text));
        Assert.Equal(["Delete n ", "Delete z "], events.Where(static happened => happened.Key.CompareTo("m") > 0).Select(Text));
        Assert.All(
            events.Where(static happened => Text(happened) is "Delete k1 " or "Delete k2 " or "Delete k3 "),
            happened => Assert.Equal(removed.Position.Etag, happened.Etag));
    }

    [Fact]
    public async Task RemovedRange_ThatIsExpanded_NeedsAllKeys()
    {
        await using var client = new KvClient("http://127.0.0.1:1");
        foreach (var watch in (KvWatch[])
        [
            new KvWatch { ExpandRanges = true },
            new KvWatch { ExpandRanges = true, Initial = true, After = "w1." },
            new KvWatch { ExpandRanges = true, Initial = true, AfterPositions = [new ShardPosition(0, new Etag(1, 1))] },
        ])
        {
            var failure = await Assert.ThrowsAsync<KvInvalidRequestException>(
                async () => await client.WatchAsync(watch).GetAsyncEnumerator().MoveNextAsync());
            Assert.Contains("ExpandRanges", failure.Message, StringComparison.Ordinal);
        }
    }

    /// <summary>Whoever applies puts and deletes, and forgets what is told, has the state, over streams that break in the entries and after them.</summary>
    [Fact]
    public async Task ExpandedWatch_OverBrokenStreams_HasTheState()
    {
        var random = Seeds.Next(output);
        await using var cluster = await NodeCluster.StartAsync(1);
        using var streams = new BreakingStreams { BreaksLeft = 8, MessagesMax = 3 };
        await using var watcher = streams.Client(cluster.AddressOf(1));
        await using var client = ClientOf(cluster);
        for (var key = 0; key < 20; key++)
            await client.PutAsync($"k{key:D2}", "old");
        var view = new SortedDictionary<string, string>(StringComparer.Ordinal);
        var watching = Task.Run(async () =>
        {
            await foreach (var message in watcher.WatchAsync(new KvWatch { Prefix = "k", Initial = true, ExpandRanges = true }))
            {
                if (message.Forget is { } range)
                {
                    foreach (var key in view.Keys.Where(key => range.Start.CompareTo(key) <= 0 && (range.End.IsEmpty || range.End.CompareTo(key) > 0)).ToList())
                        view.Remove(key);
                }
                foreach (var happened in message.Events)
                {
                    Assert.NotEqual(KvEventKind.DeleteRange, happened.Kind);
                    if (happened.Kind == KvEventKind.Put)
                        view[happened.Key.ToUtf8String()] = happened.Value.ToUtf8String();
                    else
                        view.Remove(happened.Key.ToUtf8String());
                }
                if (view.ContainsKey("kz"))
                    return;
            }
        });
        for (var change = 0; change < 200; change++)
        {
            var key = $"k{random.Next(20):D2}";
            if (random.Next(8) == 0)
                await client.DeleteRangeAsync(new KvRange { Start = key, End = $"k{random.Next(20):D2}x" });
            else if (random.Next(5) == 0)
                await client.DeleteAsync(key);
            else
                await client.PutAsync(key, $"{change}");
        }
        await client.PutAsync("kz", "end");
        await watching.WaitAsync(Eventually.Limit);
        var state = await client.ScanAsync(new KvScan { Prefix = "k" }).ToListAsync();
        Assert.Equal(state.Select(static entry => $"{entry.Key}={entry.Value}"), view.Select(static entry => $"{entry.Key}={entry.Value}"));
    }

    private static KvClient ClientOf(NodeCluster cluster) => new(new KvClientOptions { Endpoints = [cluster.AddressOf(1)], Timeout = Eventually.Limit });

    // The first events, by shard.
    private static async Task<List<string>> TakeAsync(KvClient client, KvWatch watch, int count)
    {
        var events = new List<KvEvent>();
        await foreach (var message in client.WatchAsync(watch))
        {
            events.AddRange(message.Events);
            if (events.Count >= count)
                break;
        }
        return [.. events.OrderBy(static happened => happened.Key).Select(Text)];
    }

    private static string Text(KvEvent happened) => $"{happened.Kind} {happened.Key} {happened.RangeEnd}";
}
