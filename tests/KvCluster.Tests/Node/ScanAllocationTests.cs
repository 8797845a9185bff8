using Google.Protobuf;
using Grpc.Core;
using KvCluster.Tests.Grpc;
using KvCluster.V1;

namespace KvCluster.Tests.Node;

/// <summary>What a node allocates for a scan that names more positions than any session has seen.</summary>
[Collection(AloneCollection.Name)]
public sealed class ScanAllocationTests(KvApiTests.OneNode fixture) : IClassFixture<KvApiTests.OneNode>
{
    /// <summary>Each position that a scan had seen became two objects for the duration of the scan. Nine million empty ones, 17 MiB, took 630 MB.</summary>
    [Fact]
    public async Task Scan_WithManyPositions_AllocatesNoObjectsAndObeysThemAll()
    {
        await fixture.Cluster.KvOf(1).PutAsync(new PutRequest { Key = ByteString.CopyFromUtf8("k"), Value = ByteString.CopyFromUtf8("v") });
        var parts = new byte[1_000_000];
        for (var at = 0; at < parts.Length; at += 2)
            parts[at] = (ReadOptions.SeenFieldNumber << 3) | 2;
        var far =
            new ReadOptions { Mode = ReadMode.Session, Seen = { new Position { Shard = 0, Etag = new V1.Etag { Epoch = ulong.MaxValue >> 1, Change = 1 } } } };
        var bytes = Marshallers.Create<byte[]>(bytes => bytes, bytes => bytes);
        var method = new Method<byte[], byte[]>(MethodType.ServerStreaming, "kvcluster.v1.Kv", "Scan", bytes, bytes);
        // Two values of one message field are merged.
        foreach (var (read, isServed) in ((ReadOptions, bool)[])[(new ReadOptions { Mode = ReadMode.Session }, true), (far, false)])
        {
            using var message = new MemoryStream();
            new ScanRequest { Prefix = ByteString.CopyFromUtf8("k"), Read = read }.WriteTo(message);
            using (var output = new CodedOutputStream(message, leaveOpen: true))
            {
                output.WriteTag(ScanRequest.ReadFieldNumber, WireFormat.WireType.LengthDelimited);
                output.WriteBytes(UnsafeByteOperations.UnsafeWrap(parts));
            }
            await LeastAllocated.IsAtMostAsync(12L << 20, async () =>
            {
                using var call = fixture.Cluster.ChannelOf(1).CreateCallInvoker().AsyncServerStreamingCall(
                    method, null, new CallOptions(deadline: isServed ? null : DateTime.UtcNow.AddMilliseconds(300)), message.ToArray());
                if (isServed)
                    Assert.True(await call.ResponseStream.MoveNext(CancellationToken.None));
                else
                    Assert.Equal(
                        StatusCode.DeadlineExceeded,
                        (await Assert.ThrowsAsync<RpcException>(() => call.ResponseStream.MoveNext(CancellationToken.None))).StatusCode);
            });
        }
    }
}
