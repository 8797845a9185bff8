using System.Globalization;
using Google.Protobuf;
using KvCluster.Client;
using KvCluster.V1;

namespace KvCluster.ClusterTests.Faults;

/// <summary>
/// A disk that is slow to read, under data that is not in memory. Reads ran on the thread pool, which the disk blocked. 128 Gets at 200 ms a read
/// stalled a leader's pool for 20.9 seconds, and it lost its shard.
/// </summary>
[Trait("Turn", "4")]
public sealed class SlowReadTests
{
    // A node that leads nothing, so leases do not matter.
    private const int Node = 3;
    private const int RoundsMax = 5;
    private const int Values = RoundsMax * Gets;
    private const int ValueBytes = 64 << 10;
    private const int Gets = 80;
    private const string DataFile = "shards/0/state-00000001/data";

    [BadDiskFact]
    public async Task Gets_OfPagesOnASlowDisk_LeaveTheNodeResponsive()
    {
        await using var disk = await BadDisk.CreateAsync();
        await using var cluster = await FaultCluster.StartAsync(dataOf: node => node == Node ? disk.Data : null);
        await FillAsync(cluster);
        var kv = cluster.KvOf(Node);
        var stale = new ReadOptions { Mode = ReadMode.Stale };
        for (var round = 0; ; round++)
        {
            await disk.ForgetMappedAsync(DataFile);
            // So long that the pool, which adds one or two threads a second, has not enough for all Gets when the first of them ends.
            disk.Rule($"read-delay {BadDisk.InRules(DataFile)} 10000");
            // Values that were not read before.
            var gets = Enumerable.Range(0, Gets)
                .Select(number => kv.GetAsync(new GetRequest { Key = Key((number * RoundsMax) + round), Read = stale }).ResponseAsync).ToList();
            // Over the same connection, so behind the Gets.
            await Eventually.TrueAsync(async () => await cluster.StatusOfAsync(Node) is not null, "the node answers");
            var before = gets.Count(static get => get.IsCompleted);
            disk.Rule();
            Assert.All(await Task.WhenAll(gets).WaitAsync(Eventually.Limit), static answer => Assert.Equal(ValueBytes, answer.Value.Length));
            if (before == 0)
                return;
            // The system may have kept some page in memory, or the machine stalled.
            Assert.True(round + 1 < RoundsMax, $"{before} of {Gets} Gets were answered before the status requested after them, in each of {RoundsMax} rounds");
        }
    }

    /// <summary>
    /// The loop of an exchange read everything itself, one page after the other, because that needs only one place. Everything else on the stream,
    /// even changes and calls to other shards, waited until all Gets of pages that were not in memory were answered.
    /// </summary>
    [BadDiskFact]
    public async Task Call_BehindGetsOfPagesOnASlowDisk_DoesNotWaitForThem()
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
            // A change is refused at once, because this node does not lead.
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
            // The loop had waited for the first Get and learned from it.
            if (before <= Gets / 2)
                return;
            // The system may have kept the pages in memory, or the machine stalled.
            Assert.True(round + 1 < RoundsMax, $"{before} of {Gets} Gets were answered before the change sent after them, in each of {RoundsMax} rounds");
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
