using System.Globalization;
using Google.Protobuf;
using KvCluster.Client;
using KvCluster.V1;

namespace KvCluster.ClusterTests.Faults;

/// <summary>
/// A disk that is slow to read, under data that is not in memory. Reads were made on the threads of the pool, which the disk held up: 128 Gets at 200 ms a read had a leader's pool stand still for
/// 20.9 seconds, and it lost its shard.
/// </summary>
public sealed class SlowReadTests
{
    // A node that leads nothing: what a read costs it is no matter of leases.
    private const int Node = 3;
    private const int RoundsMax = 3;
    private const int Values = RoundsMax * Gets;
    private const int ValueBytes = 64 << 10;
    private const int Gets = 80;
    private const string DataFile = "shards/0/state-00000001/data";

    [BadDiskFact]
    public async Task Gets_OfPagesThatTheDiskIsSlowToRead_LeaveTheNodeAnswering()
    {
        await using var disk = await BadDisk.CreateAsync();
        await using var cluster = await FaultCluster.StartAsync(dataOf: node => node == Node ? disk.Data : null);
        await FillAsync(cluster);
        var kv = cluster.KvOf(Node);
        var stale = new ReadOptions { Mode = ReadMode.Stale };
        for (var round = 0; ; round++)
        {
            await disk.ForgetMappedAsync(DataFile);
            // So long that the pool, which adds a thread or two a second, does not have one for each of the Gets when the first of them ends.
            disk.Rule($"read-delay {BadDisk.InRules(DataFile)} 10000");
            // Values that were not touched before.
            var gets = Enumerable.Range(0, Gets).Select(number => kv.GetAsync(new GetRequest { Key = Key((number * RoundsMax) + round), Read = stale }).ResponseAsync).ToList();
            // Over the same connection, so behind them.
            await Eventually.TrueAsync(async () => await cluster.StatusOfAsync(Node) is not null, "the node answers");
            var before = gets.Count(static get => get.IsCompleted);
            disk.Rule();
            Assert.All(await Task.WhenAll(gets).WaitAsync(Eventually.Limit), static answer => Assert.Equal(ValueBytes, answer.Value.Length));
            if (before == 0)
                return;
            // The system may have kept some page, or the machine stood still.
            Assert.True(round + 1 < RoundsMax, $"{before} of {Gets} Gets were answered before the status that was asked behind them, in each of {RoundsMax} rounds");
        }
    }

    /// <summary>
    /// The loop of an exchange read by itself whatever had come, one page after the other, since it needs no more than one of the places for that: behind Gets of pages that were not in memory everything
    /// else of the stream waited until all of them were answered, changes and other shards' calls too.
    /// </summary>
    [BadDiskFact]
    public async Task Call_BehindGetsOfAnExchangeThatTheDiskIsSlowToRead_DoesNotWaitForThem()
    {
        await using var disk = await BadDisk.CreateAsync();
        await using var cluster = await FaultCluster.StartAsync(dataOf: node => node == Node ? disk.Data : null);
        await FillAsync(cluster);
        for (var round = 0; ; round++)
        {
            await disk.ForgetMappedAsync(DataFile);
            disk.Rule($"read-delay {BadDisk.InRules(DataFile)} 50");
            using var exchange = cluster.KvOf(Node).Exchange(deadline: DateTime.UtcNow + Eventually.Limit);
            var request = new ExchangeRequest();
            for (var number = 0; number < Gets; number++)
            {
                var get = new GetRequest { Key = Key((number * RoundsMax) + round), Read = new ReadOptions { Mode = ReadMode.Stale } };
                request.Calls.Add(new Call { Id = (ulong)number, Method = Method.Get, Request = get.ToByteString(), TimeoutMs = 600_000 });
            }
            // A change is told at once that this node does not lead.
            request.Calls.Add(new Call { Id = Gets, Method = Method.Put, Request = new PutRequest { Key = Key(0) }.ToByteString(), TimeoutMs = 600_000 });
            await exchange.RequestStream.WriteAsync(request);
            var replies = new List<Reply>();
            var before = -1;
            while (replies.Count <= Gets && await exchange.ResponseStream.MoveNext(CancellationToken.None))
            {
                replies.AddRange(exchange.ResponseStream.Current.Replies);
                if (before >= 0 || (before = replies.FindIndex(static reply => reply.Id == Gets)) < 0)
                    continue;
                disk.Rule();
            }
            Assert.Equal(Gets + 1, replies.Count);
            Assert.All(replies, static reply => Assert.Equal(reply.Id != Gets, reply.Code == 0));
            // The first had the loop wait, and so it knew.
            if (before <= Gets / 2)
                return;
            // The system may have kept the pages, or the machine stood still.
            Assert.True(round + 1 < RoundsMax, $"{before} of {Gets} Gets were answered before the change that came behind them, in each of {RoundsMax} rounds");
        }
    }

    // All values are in the data file of every node.
    private static async Task FillAsync(FaultCluster cluster)
    {
        await using (var client = new KvClient(new KvClientOptions { Endpoints = cluster.Endpoints, Timeout = Eventually.Limit }))
            await Task.WhenAll(Enumerable.Range(0, Values).Select(number => client.PutAsync(Key(number).ToByteArray(), new byte[ValueBytes]).AsTask()));
        await cluster.UntilFollowsAsync(Node);
        await cluster.CheckpointAsync();
    }

    private static ByteString Key(int number) => ByteString.CopyFromUtf8(string.Create(CultureInfo.InvariantCulture, $"cold/{number:00000}"));
}
