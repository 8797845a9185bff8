using Google.Protobuf;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Router;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.Tests.Client;
using KvCluster.Tests.Grpc;
using KvCluster.V1;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Router;

/// <summary>What a router allocates for calls that it is going to refuse.</summary>
[Collection(AloneCollection.Name)]
public sealed class RouterAllocationTests : IAsyncLifetime
{
    private FakeCluster _cluster = null!;
    private RouterHost _router = null!;
    private GrpcChannel _channel = null!;

    public async Task InitializeAsync()
    {
        _cluster = await FakeCluster.StartAsync(3, "g", "p");
        _router = await RouterHost.StartAsync(
            new RouterOptions { Listen = "http://127.0.0.1:0", Seeds = [_cluster.Nodes[1].Address], Timeout = Eventually.Limit },
            new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None);
        _channel = GrpcChannel.ForAddress(_router.Address, new GrpcChannelOptions { MaxReceiveMessageSize = null });
    }

    public async Task DisposeAsync()
    {
        _channel.Dispose();
        await _router.DisposeAsync();
        await _cluster.DisposeAsync();
    }

    /// <summary>
    /// The router made an object for every call of a message before it started the first. A message of 17 MiB with two bytes per call took 850 MB,
    /// although its caller read nothing.
    /// </summary>
    [Fact]
    public async Task Exchange_WithMillionsOfCallsInAMessage_DecodesOnlyAsManyAsItHasRoomFor()
    {
        var calls = new byte[16 << 20];
        for (var at = 0; at < calls.Length; at += 2)
            calls[at] = 0x0A;
        var method = new Method<byte[], byte[]>(
            MethodType.DuplexStreaming, "kvcluster.v1.Kv", "Exchange", Marshallers.Create<byte[]>(bytes => bytes, bytes => bytes),
            Marshallers.Create<byte[]>(bytes => bytes, bytes => bytes));
        // The message on both sides, and the first replies. All calls together are 8.4 million objects of a hundred bytes.
        await LeastAllocated.IsAtMostAsync(300L << 20, async () =>
        {
            using var stream = _channel.CreateCallInvoker().AsyncDuplexStreamingCall(method, null, new CallOptions());
            await stream.RequestStream.WriteAsync(calls);
            Assert.True(await stream.ResponseStream.MoveNext(CancellationToken.None));
        });
    }

    /// <summary>
    /// A Scan of 17 MiB with nine million empty positions took a gigabyte here and 600 MB at the node, only to be refused as too large. A GetMany
    /// with as many keys took half of that.
    /// </summary>
    [Theory]
    [InlineData("Scan", ScanRequest.ReadFieldNumber, "BAD_REQUEST")]
    [InlineData("GetMany", GetManyRequest.ReadFieldNumber, "BAD_REQUEST")]
    [InlineData("GetMany", 0, "TOO_MANY_OPERATIONS")]
    public async Task Reads_OfTooManyPositionsOrKeys_AreRefusedBeforeDecoding(string name, int readField, string reason)
    {
        var count = name == "Scan" ? 500_000 : 4_000_000;
        var parts = new byte[2 * count];
        for (var at = 0; at < parts.Length; at += 2)
            parts[at] = (byte)(((readField == 0 ? GetManyRequest.KeysFieldNumber : ReadOptions.SeenFieldNumber) << 3) | 2);
        var request = parts;
        if (readField != 0)
        {
            using var message = new MemoryStream();
            using (var output = new CodedOutputStream(message, leaveOpen: true))
            {
                output.WriteTag(readField, WireFormat.WireType.LengthDelimited);
                output.WriteBytes(UnsafeByteOperations.UnsafeWrap(parts));
            }
            request = message.ToArray();
        }
        var bytes = Marshallers.Create<byte[]>(bytes => bytes, bytes => bytes);
        var isScan = name == "Scan";
        var method = new Method<byte[], byte[]>(isScan ? MethodType.ServerStreaming : MethodType.Unary, "kvcluster.v1.Kv", name, bytes, bytes);
        // The message itself lies in buffers of both sides and is copied.
        await LeastAllocated.IsAtMostAsync((8 << 20) + (6L * request.Length), async () =>
        {
            var failure = await Assert.ThrowsAsync<RpcException>(async () =>
            {
                if (isScan)
                    await _channel.CreateCallInvoker().AsyncServerStreamingCall(method, null, new CallOptions(), request)
                        .ResponseStream.MoveNext(CancellationToken.None);
                else
                    await _channel.CreateCallInvoker().AsyncUnaryCall(method, null, new CallOptions(), request);
            });
            Assert.Equal((StatusCode.InvalidArgument, reason), (failure.StatusCode, failure.GetRpcStatus()!.GetDetail<Google.Rpc.ErrorInfo>()!.Reason));
        });
    }
}
