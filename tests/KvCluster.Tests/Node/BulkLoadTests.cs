using Google.Protobuf;
using Grpc.Core;
using KvCluster.V1;

namespace KvCluster.Tests.Node;

/// <summary>Streams of BulkLoad at a node, as their callers see them: one node, and two shards divided at "m".</summary>
public sealed class BulkLoadTests(KvApiTests.OneNode fixture) : IClassFixture<KvApiTests.OneNode>
{
    private readonly Kv.KvClient _kv = fixture.Cluster.KvOf(1);
    private readonly string _prefix = $"a/{Guid.NewGuid():N}/";

    [Fact]
    public async Task Chunks_AreAcknowledgedInOrder_AndTheLastValueOfAKeyCounts()
    {
        const int Chunks = 50;
        using var load = _kv.BulkLoad();
        var sending = Task.Run(async () =>
        {
            for (var chunk = 1; chunk <= Chunks; chunk++)
                await load.RequestStream.WriteAsync(Chunk(
                    chunk,
                    [.. Enumerable.Range(0, 100).Select(key => Entry($"{chunk}/{key}", "v")), Entry("same", $"{chunk}"), Entry("same", $"{chunk} again")]));
            await load.RequestStream.CompleteAsync();
        });
        var etag = new V1.Etag();
        for (var chunk = 1ul; chunk <= Chunks; chunk++)
        {
            Assert.True(await load.ResponseStream.MoveNext(CancellationToken.None));
            var answer = load.ResponseStream.Current;
            Assert.Equal(chunk, answer.Chunk);
            Assert.True((answer.Position.Etag.Epoch, answer.Position.Etag.Change).CompareTo((etag.Epoch, etag.Change)) > 0);
            etag = answer.Position.Etag;
            Assert.NotEqual(0ul, answer.Position.Lineage);
        }
        Assert.False(await load.ResponseStream.MoveNext(CancellationToken.None));
        await sending;
        Assert.Equal(etag, (await GetAsync("same")).Etag);
        Assert.Equal($"{Chunks} again", (await GetAsync("same")).Value.ToStringUtf8());
        Assert.Equal((Chunks * 100ul) + 1, (await _kv.CountAsync(new CountRequest { Prefix = Utf8(_prefix) })).Count);
    }

    [Fact]
    public async Task RefusedChunk_EndsTheStreamWithItsError_AfterThoseBeforeIt()
    {
        using var load = _kv.BulkLoad();
        await load.RequestStream.WriteAsync(Chunk(1, Entry("1", "v")));
        await load.RequestStream.WriteAsync(Chunk(2, Entry("2", "v"), new Entry { Key = Utf8("z"), Value = Utf8("of another shard") }));
        Assert.True(await load.ResponseStream.MoveNext(CancellationToken.None));
        Assert.Equal(1ul, load.ResponseStream.Current.Chunk);
        await RefusedAsync(load, StatusCode.FailedPrecondition, "SHARDS_DIFFER");
        Assert.True((await GetAsync("1")).Found);
        Assert.False((await GetAsync("2")).Found);
    }

    [Theory]
    [InlineData("number", "BAD_REQUEST")]
    [InlineData("entries", "TOO_MANY_OPERATIONS")]
    [InlineData("none", "BAD_REQUEST")]
    [InlineData("key", "KEY_TOO_LONG")]
    [InlineData("empty", "KEY_EMPTY")]
    [InlineData("value", "VALUE_TOO_LARGE")]
    [InlineData("bytes", "WRITE_TOO_LARGE")]
    public async Task Chunk_BeyondALimit_IsRefusedWhole(string what, string reason)
    {
        using var load = _kv.BulkLoad();
        await load.RequestStream.WriteAsync(what switch
        {
            "number" => Chunk(2, Entry("k", "v")),
            "entries" => Chunk(1, [.. Enumerable.Range(0, 10_001).Select(key => Entry($"{key}", ""))]),
            "none" => Chunk(1),
            "key" => Chunk(1, Entry("k", "v"), Entry(new string('k', 2_048), "v")),
            "empty" => Chunk(1, Entry("k", "v"), new Entry { Value = Utf8("v") }),
            "value" => Chunk(1, Entry("k", "v"), new Entry { Key = Utf8(_prefix), Value = ByteString.CopyFrom(new byte[(8 << 20) + 1]) }),
            _ => Chunk(
                1, [.. Enumerable.Range(0, 17).Select(key => new Entry { Key = Utf8($"{_prefix}{key}"), Value = ByteString.CopyFrom(new byte[1 << 20]) })]),
        });
        await RefusedAsync(load, StatusCode.InvalidArgument, reason);
        Assert.Equal(0ul, (await _kv.CountAsync(new CountRequest { Prefix = Utf8(_prefix) })).Count);
    }

    [Fact]
    public async Task Stream_WhoseCallerGoesAway_LeavesWholeChunks()
    {
        using (var load = _kv.BulkLoad())
        {
            for (var chunk = 1; chunk <= 20; chunk++)
                await load.RequestStream.WriteAsync(Chunk(chunk, [.. Enumerable.Range(0, 50).Select(key => Entry($"{chunk:d2}/{key}", "v"))]));
            Assert.True(await load.ResponseStream.MoveNext(CancellationToken.None));
        }
        Assert.Equal(0ul, (await _kv.CountAsync(new CountRequest { Prefix = Utf8(_prefix) })).Count % 50);
        Assert.Equal(50ul, (await _kv.CountAsync(new CountRequest { Prefix = Utf8($"{_prefix}01/") })).Count);
    }

    private static BulkLoadRequest Chunk(int number, params Entry[] entries) => new() { Chunk = (ulong)number, Entries = { entries } };

    private static Task RefusedAsync(AsyncDuplexStreamingCall<BulkLoadRequest, BulkLoadResponse> load, StatusCode code, string reason) =>
        Refusal.ExpectAsync(() => load.ResponseStream.MoveNext(CancellationToken.None), code, reason);

    private Entry Entry(string key, string value) => new() { Key = Utf8(_prefix + key), Value = Utf8(value) };

    private Task<GetResponse> GetAsync(string key) => _kv.GetAsync(new GetRequest { Key = Utf8(_prefix + key) }).ResponseAsync;

    private static ByteString Utf8(string text) => ByteString.CopyFromUtf8(text);
}
