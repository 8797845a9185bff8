using System.Diagnostics;
using System.Text;
using KvCluster.Client;
using KvCluster.Processes;
using KvCluster.Tests.Node;
using Xunit.Abstractions;

namespace KvCluster.Tests.Client;

/// <summary>
/// A connection whose packets are dropped on the way is not closed by anybody. StackExchange.Redis waited a quarter of an hour for the system to give it up
/// (#1848). The client's pings notice it after five seconds at most, and what was under way goes on over another connection.
/// </summary>
public sealed class DeadConnectionTests(ITestOutputHelper output)
{
    private static readonly byte[] Prefix = "dead/"u8.ToArray();

    [Fact]
    public async Task Calls_OnAConnectionWhosePacketsAreDropped_GoOnOverAnotherOne()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var relay = new Relay(new Network(), to: 1, new Uri(cluster.Endpoint).Port, from: Network.Clients);
        cluster.AddressesTold[1] = $"http://127.0.0.1:{relay.Port}";
        await using var client = cluster.Connect();
        await client.PutAsync("a", "1");
        relay.DropOpen();
        var began = Stopwatch.GetTimestamp();
        var calls = Enumerable.Range(0, 100).Select(async number =>
        {
            await client.PutAsync($"{number}", "v");
            Assert.True((await client.GetAsync($"{number}")).Found);
        });
        await Task.WhenAll(calls).WaitAsync(Eventually.Limit);
        output.WriteLine($"went on after {Stopwatch.GetElapsedTime(began).TotalSeconds:F1} s");
        Assert.All(Enumerable.Range(0, 100), number => Assert.Equal(1, cluster.Applied[$"{number}"]));
    }

    [Fact]
    public async Task Watch_OnAConnectionWhosePacketsAreDropped_GoesOnWithoutAGap()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        var port = new Uri(cluster.AddressOf(1)).Port;
        await using var relay = new Relay(new Network(), to: 1, port, from: Network.Clients);
        await using var writer = new KvClient(new KvClientOptions { Endpoints = [cluster.AddressOf(1)], Timeout = Eventually.Limit });
        await using var watcher = new KvClient(
            new KvClientOptions { Endpoints = [$"http://127.0.0.1:{relay.Port}"], Gateway = true, Timeout = Eventually.Limit });
        using var stop = new CancellationTokenSource(Eventually.Limit);
        var dropped = false;
        var next = 0;
        await writer.PutAsync(Key(0), "v"u8.ToArray());
        await foreach (var message in watcher.WatchAsync(new KvWatch { Prefix = Prefix, Initial = true }, stop.Token))
        {
            foreach (var change in message.Events)
            {
                Assert.Equal(next, change.Key.Span[^1]);
                next++;
            }
            if (next == 100)
                break;
            if (next > 0 && !dropped)
            {
                dropped = true;
                relay.DropOpen();
                for (byte number = 1; number < 100; number++)
                    await writer.PutAsync(Key(number), "v"u8.ToArray());
            }
        }
        Assert.Equal(100, next);
    }

    /// <summary>oxia #834: a put, a delete and a put of one key, of which the client's batches changed the order.</summary>
    [Fact]
    public async Task ChangesOfAKey_BegunOneAfterTheOther_KeepTheirOrder()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.AddressOf(1)], Timeout = Eventually.Limit });
        await client.PutAsync("first", "opens the session");
        for (var round = 0; round < 80; round++)
        {
            var key = $"order/{round % 7}";
            var first = client.PutAsync(key, "first");
            var delete = client.DeleteAsync(key);
            var last = client.PutAsync(key, $"{round}");
            var etags = ((await first).Etag, (await delete).Position.Etag, (await last).Etag);
            Assert.True(etags.Item1 < etags.Item2 && etags.Item2 < etags.Item3, $"{etags}");
            var read = await client.GetAsync(key);
            Assert.Equal(($"{round}", etags.Item3), (Encoding.UTF8.GetString(read.Value.Span), read.Etag));
        }
    }

    private static byte[] Key(byte number) => [.. Prefix, number];
}
