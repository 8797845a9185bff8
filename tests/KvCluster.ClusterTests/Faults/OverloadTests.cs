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

/// <summary>More load than a cluster takes, beside five client processes whose histories must be linearizable: F28.</summary>
public sealed class OverloadTests(SharedCluster shared) : IClassFixture<SharedCluster>
{
    private const int Some = 150;

    // Ten times the 16,384 requests that a shard's queue takes are under way at once, if the node reads them: 4,096 of a stream.
    private const int Streams = 40;
    private const int CallsOfAStream = 4_000;
    private const int CallsOfAMessage = 500;
    private const int RoundsMax = 10;

    // A queue of 64 MiB and what holds it, above what a node of a small cluster takes.
    private const long NodeBytesMax = 700L << 20;

    /// <summary>The queue is bounded: what it does not take is refused as busy, at once and with a pause to wait, and is not applied; what it takes is.</summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F28_TenTimesWhatTheQueueTakes_IsRefusedAsBusyAndServedAtOnceAfterwards()
    {
        var (cluster, histories) = await shared.BeginAsync();
        await histories.MoreChangesAsync(Some);
        var leader = await cluster.LeaderAsync();
        var channels = Enumerable.Range(0, Streams).Select(_ => GrpcChannel.ForAddress(cluster.Endpoints[leader - 1])).ToArray();
        var (applied, busy) = (0, 0);
        // A machine whose disk is far ahead of its cores may take all of one round.
        for (var round = 0; busy == 0; round++)
        {
            Assert.True(round < RoundsMax, $"all of {RoundsMax} times {Streams * CallsOfAStream} calls were taken");
            var answers = await Task.WhenAll(channels.Select((channel, stream) => Task.Run(() => FloodAsync(channel, $"flood/{round}/{stream:D2}/"))));
            applied += answers.Sum(answer => answer.Applied);
            busy += answers.Sum(answer => answer.Busy);
            Assert.InRange(Process.GetProcessById(cluster.Node(leader).Id).WorkingSet64, 1, NodeBytesMax);
        }

        // Nobody waits any more, so there is room: a call that repeats nothing is served.
        await new Kv.KvClient(channels[0]).PutAsync(new V1.PutRequest { Key = ByteString.CopyFromUtf8("after"), Value = ByteString.CopyFromUtf8("the flood") });
        foreach (var channel in channels)
            channel.Dispose();
        await using var client = new KvClient(new KvClientOptions { Endpoints = cluster.Endpoints, Timeout = Until.Limit });
        var found = 0;
        await foreach (var entry in client.ScanAsync(new KvScan { Prefix = Encoding.UTF8.GetBytes("flood/"), KeysOnly = true }))
            found++;
        Assert.Equal(applied, found);
        await histories.MoreChangesAsync(Some);
        await shared.EndAsync();
    }

    // Sends all of its calls as fast as the node reads them; how many were applied and how many refused as busy. There is no third answer.
    private static async Task<(int Applied, int Busy)> FloodAsync(GrpcChannel channel, string prefix)
    {
        using var exchange = new Kv.KvClient(channel).Exchange();
        var sending = Task.Run(async () =>
        {
            for (var first = 0; first < CallsOfAStream; first += CallsOfAMessage)
                await exchange.RequestStream.WriteAsync(new ExchangeRequest { Calls = { Enumerable.Range(first, CallsOfAMessage).Select(number => PutOf(prefix, number)) } });
            await exchange.RequestStream.CompleteAsync();
        });
        var (applied, busy) = (0, 0);
        while (await exchange.ResponseStream.MoveNext(CancellationToken.None))
        {
            foreach (var reply in exchange.ResponseStream.Current.Replies)
            {
                if (reply.Code == 0)
                    applied++;
                else if (IsBusy(reply))
                    busy++;
                else
                    Assert.Fail($"{(StatusCode)reply.Code}: {Google.Rpc.Status.Parser.ParseFrom(reply.Status).Message}");
            }
        }

        await sending;
        Assert.Equal(CallsOfAStream, applied + busy);
        return (applied, busy);
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
        return details.Any(static detail => detail.TryUnpack<ErrorInfo>(out var info) && info.Reason == "BUSY") && details.Any(static detail => detail.TryUnpack<RetryInfo>(out var retry) && retry.RetryDelay is not null);
    }
}
