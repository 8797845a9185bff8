using System.Diagnostics;
using System.Text;
using Google.Protobuf;
using Google.Rpc;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Client;
using KvCluster.Processes;
using KvCluster.V1;

namespace KvCluster.ClusterTests.Faults;

/// <summary>More load than a cluster can process, beside five client processes whose histories must be linearizable: F28.</summary>
[Trait("Turn", "5")]
public sealed class OverloadTests(SharedCluster shared) : IClassFixture<SharedCluster>
{
    private const int Some = 150;

    // Together ten times the 16,384 requests that a shard's queue holds, if the node reads them: 4,096 per stream.
    private const int Streams = 40;
    private const int CallsOfAStream = 4_000;
    private const int CallsOfAMessage = 500;
    private const int RoundsMax = 10;

    // A queue of 64 MiB with its overhead, above what a node of a small cluster takes.
    private const long NodeBytesMax = 700L << 20;

    /// <summary>
    /// The queue is bounded. Requests that do not fit are refused as busy at once, with a time to wait, and are not applied. The others are applied.
    /// </summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F28_TenTimesTheQueuesCapacity_IsRefusedAsBusyAndServedAtOnceAfterwards()
    {
        var (cluster, histories) = await shared.BeginAsync();
        await histories.MoreChangesAsync(Some);
        var (round, applied) = (0, 0);
        // Try again if the disk was so much faster than the cores that all calls were accepted, or if the leadership moved, which other tests are about.
        while (applied == 0)
        {
            Assert.True(round < RoundsMax, $"in {RoundsMax} rounds of {Streams * CallsOfAStream} calls either all were accepted or the leadership moved");
            applied = await FloodAsync(cluster, $"flood/{++round}/");
        }

        await using var client = new KvClient(new KvClientOptions { Endpoints = cluster.Endpoints, Timeout = Eventually.Limit });
        var found = 0;
        await foreach (var entry in client.ScanAsync(new KvScan { Prefix = Encoding.UTF8.GetBytes($"flood/{round}/"), KeysOnly = true }))
            found++;
        Assert.Equal(applied, found);
        await histories.MoreChangesAsync(Some);
        await shared.EndAsync();
    }

    // Returns how many calls were applied in a round in which some were refused as busy and all others applied, or 0 for any other round.
    private static async Task<int> FloodAsync(FaultCluster cluster, string prefix)
    {
        var (leader, epoch, since) = (await cluster.LeaderAsync(), await cluster.EpochAsync(), cluster.LogLengths());
        var channels = Enumerable.Range(0, Streams).Select(_ => GrpcChannel.ForAddress(cluster.Endpoints[leader - 1])).ToArray();
        try
        {
            var answers = await Task.WhenAll(channels.Select((channel, stream) => Task.Run(() => FloodAsync(channel, $"{prefix}{stream:D2}/"))));
            Assert.InRange(Process.GetProcessById(cluster.Node(leader).Id).WorkingSet64, 1, NodeBytesMax);
            // Between two leaders the epoch is still the old one.
            if (await cluster.EpochAsync() != epoch || (answers.Any(static answer => answer.Other is not null) && cluster.StallSince(since) is not null))
                return 0;
            Assert.All(answers, static answer => Assert.Null(answer.Other));
            if (answers.All(static answer => answer.Busy == 0))
                return 0;
            // Nobody waits any more, so there are places. A call that is never repeated is served.
            await new Kv.KvClient(channels[0].Calls())
                .PutAsync(new V1.PutRequest { Key = ByteString.CopyFromUtf8("after"), Value = ByteString.CopyFromUtf8("the flood") });
            return answers.Sum(static answer => answer.Applied);
        }
        catch (RpcException)
        {
            if (await cluster.EpochAsync() == epoch && cluster.StallSince(since) is null)
                throw;
            return 0;
        }
        finally
        {
            foreach (var channel in channels)
                channel.Dispose();
        }
    }

    // Sends all calls as fast as the node reads them. Returns how many were applied, how many were refused as busy, and another answer if there was one.
    private static async Task<(int Applied, int Busy, string? Other)> FloodAsync(GrpcChannel channel, string prefix)
    {
        using var exchange = new Kv.KvClient(channel.Calls()).Exchange();
        var sending = Task.Run(async () =>
        {
            for (var first = 0; first < CallsOfAStream; first += CallsOfAMessage)
                await exchange.RequestStream.WriteAsync(
                    new ExchangeRequest { Calls = { Enumerable.Range(first, CallsOfAMessage).Select(number => PutOf(prefix, number)) } });
            await exchange.RequestStream.CompleteAsync();
        });
        var (applied, busy, other) = (0, 0, (string?)null);
        var answered = 0;
        while (await exchange.ResponseStream.MoveNext(CancellationToken.None))
        {
            foreach (var reply in exchange.ResponseStream.Current.Replies)
            {
                answered++;
                if (reply.Code == 0)
                    applied++;
                else if (IsBusy(reply))
                    busy++;
                else
                    other = $"{(StatusCode)reply.Code}: {Google.Rpc.Status.Parser.ParseFrom(reply.Status).Message}";
            }
        }

        await sending;
        Assert.Equal(CallsOfAStream, answered);
        return (applied, busy, other);
    }

    private static Call PutOf(string prefix, int number) => new()
    {
        Id = (ulong)number + 1,
        Method = Method.Put,
        Request = new V1.PutRequest { Key = ByteString.CopyFromUtf8($"{prefix}{number:D4}"), Value = ByteString.CopyFromUtf8("water") }.ToByteString(),
    };

    private static bool IsBusy(Reply reply)
    {
        var details = Google.Rpc.Status.Parser.ParseFrom(reply.Status).Details;
        return details.Any(static detail => detail.TryUnpack<ErrorInfo>(out var info) && info.Reason == "BUSY")
            && details.Any(static detail => detail.TryUnpack<RetryInfo>(out var retry) && retry.RetryDelay is not null);
    }
}
