using System.Buffers.Binary;
using System.Net;
using KvCluster.V1;
using static Google.Protobuf.ByteString;

namespace KvCluster.Tests.Node;

/// <summary>
/// Callers that send their requests a byte at a time, to hold connections and memory with little effort (the attack of the program Slowloris).
/// </summary>
[Trait("Turn", "1")]
public sealed class SlowCallerTests
{
    private const int Callers = 1_000;

    /// <summary>A unary request is to arrive with 4 KiB a second, after ten seconds in which it may be slower.</summary>
    [Fact]
    public async Task Put_SentAByteAtATime_IsEndedAndKeepsNobodyOut()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.LeaderOfAsync(0);
        using var callers = Connect();
        await Eventually.TrueAsync(async () =>
        {
            var calls = Enumerable.Range(0, Callers).Select(_ => CallAsync(callers, cluster.AddressOf(1), "Put", CancellationToken.None)).ToList();
            await ServesAsync(cluster);
            // Where the machine stalls for ten seconds, all of them have ended before.
            var wasMeanwhile = calls.Any(static call => !call.IsCompleted);
            await Task.WhenAll(calls).WaitAsync(Eventually.Limit);
            return wasMeanwhile;
        }, "the node serves others while slow callers send");
        await ServesAsync(cluster);
    }

    /// <summary>A stream of calls may be idle for long, so its node leaves it open.</summary>
    [Fact]
    public async Task Exchange_SentAByteAtATime_KeepsNobodyOut()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.LeaderOfAsync(0);
        using var enough = new CancellationTokenSource();
        using var callers = Connect();
        var streams = Enumerable.Range(0, Callers).Select(_ => CallAsync(callers, cluster.AddressOf(1), "Exchange", enough.Token)).ToList();
        for (var round = 0; round < 10; round++)
            await ServesAsync(cluster);
        Assert.All(streams, static stream => Assert.False(stream.IsCompleted));
        await enough.CancelAsync();
        await Task.WhenAll(streams).WaitAsync(Eventually.Limit);
        await ServesAsync(cluster);
    }

    private static HttpClient Connect() => new(new SocketsHttpHandler { EnableMultipleHttp2Connections = true }) { Timeout = Timeout.InfiniteTimeSpan };

    private static async Task ServesAsync(NodeCluster cluster)
    {
        await cluster.KvOf(1).PutAsync(new PutRequest { Key = CopyFromUtf8("k"), Value = CopyFromUtf8("v") });
        Assert.True((await cluster.KvOf(1).GetAsync(new GetRequest { Key = CopyFromUtf8("k") })).Found);
    }

    // Ends when the node ends the call, or the caller does.
    private static async Task CallAsync(HttpClient client, string address, string method, CancellationToken cancellation)
    {
        using var request = new HttpRequestMessage(HttpMethod.Post, $"{address}/kvcluster.v1.Kv/{method}")
        {
            Version = HttpVersion.Version20,
            VersionPolicy = HttpVersionPolicy.RequestVersionExact,
            Content = new SlowContent(cancellation),
        };
        try
        {
            using var response = await client.SendAsync(request, HttpCompletionOption.ResponseContentRead, cancellation);
        }
        catch (Exception ended) when (ended is HttpRequestException or IOException or OperationCanceledException)
        {
            // As it should.
        }
    }

    /// <summary>A message that says it is long, and of which a byte comes now and then.</summary>
    private sealed class SlowContent : HttpContent
    {
        private static readonly TimeSpan Pause = TimeSpan.FromMilliseconds(500);
        private readonly CancellationToken _cancellation;

        public SlowContent(CancellationToken cancellation)
        {
            _cancellation = cancellation;
            Headers.ContentType = new("application/grpc");
        }

        protected override async Task SerializeToStreamAsync(Stream stream, TransportContext? context)
        {
            var header = new byte[5];
            BinaryPrimitives.WriteUInt32BigEndian(header.AsSpan(1), 1 << 20);
            for (ReadOnlyMemory<byte> next = header; ; next = new byte[1])
            {
                await stream.WriteAsync(next, _cancellation);
                await stream.FlushAsync(_cancellation);
                await Task.Delay(Pause, _cancellation);
            }
        }

        protected override bool TryComputeLength(out long length)
        {
            length = 0;
            return false;
        }
    }
}
