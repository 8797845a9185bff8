using Google.Protobuf;
using KvCluster.Node.Api;
using KvCluster.Node.Api.Calls;
using KvCluster.Node.Api.Reads;
using KvCluster.Node.Runtime;
using KvCluster.Node.Telemetry;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.Storage.Context;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Tests.Node;

/// <summary>
/// How often a node copies what is put. The bytes of a put that was just answered are looked for in the whole memory of the process
/// (<see cref="MemoryPlaces"/>), so each copy is counted that was not overwritten meanwhile: another buffer on the way, pooled or not, is one more place. The
/// sixth copy is gRPC's, from the record into the stream to a follower, for which <c>BodySlabTests</c> shows that the record itself is passed on.
/// </summary>
[Collection(AloneCollection.Name)]
public sealed class PutCopiesTests
{
    /// <summary>The message as received, the request, the record, the buffer from which the journal is written, and the page of the tree.</summary>
    private const int PlacesMax = 5;

    /// <summary>Attempts until one is not disturbed by a collection, which moves objects.</summary>
    private const int AttemptsMax = 20;

    private readonly MemoryPlaces _memory = new();

    /// <summary>There were six before records were sealed where their operations gather.</summary>
    [Theory]
    [InlineData(1_000)]
    [InlineData(100_000)]
    public async Task Put_FromTheMessageToJournalAndTree_IsInFivePlaces(int valueBytes)
    {
        await using var cluster = await NodeCluster.StartAsync(new StoreOptions());
        await using var metrics = new NodeMetrics(new NodeIdentity("local", "", new(1), 1, ""), shardSeriesMax: 0);
        var lookup = new ShardLookup(new(1), cluster.ShardsOf(1), metrics.Activity.Hot);
        var calls = new KvCalls(
            lookup, new ReadOpener(lookup, TimeProvider.System), new ReadThreads(hereMax: 1, threads: 0),
            new KeptSnapshots(TimeProvider.System, TimeSpan.FromMinutes(1)), QueryMemory.For(CallMemory.MebibytesDefault), metrics, TimeProvider.System);
        // Where records are compressed, what was tried is a further place, also if it did not pay.
        var placesMax = PlacesMax + (cluster.ShardsOf(1).Threads.Options.CompressRecords ? 1 : 0);
        // The first puts wait for the leader, and make what is made once.
        await cluster.PutAsync(new PutRequest { Key = ByteString.CopyFromUtf8("k"), Value = ByteString.CopyFromUtf8("v") });
        var first = Encode(seed: 0, valueBytes);
        await PutAsync(calls, first);
        first.Return();
        for (var attempt = 0; attempt < AttemptsMax; attempt++)
        {
            GC.Collect();
            var collections = GC.CollectionCount(0);
            var seed = Random.Shared.Next();
            var message = Encode(seed, valueBytes);
            await PutAsync(calls, message);
            var places = _memory.Count(seed, valueBytes);
            var isDisturbed = GC.CollectionCount(0) > collections;
            message.Return();
            if (isDisturbed)
                continue;
            // The journal's buffer may have been used again.
            Assert.InRange(places, placesMax - 2, placesMax);
            return;
        }
        Assert.Fail($"All of {AttemptsMax} attempts were disturbed by a collection.");
    }

    private static async Task PutAsync(KvCalls calls, MessageBytes message)
    {
        var response = MessageBytes.Rent();
        var sink = new UnarySink(response, new CallMemory(CallMemory.MebibytesMin));
        await calls.StartAsync(Method.Put, message.Written, new CallTarget(default, 0, 0, CancellationToken.None), sink);
        Assert.Null(response.Error);
        response.Return();
    }

    // The value is made in its place, so that the message has the only one.
    private static MessageBytes Encode(int seed, int valueBytes)
    {
        var message = MessageBytes.Rent();
        var key = BitConverter.GetBytes(seed);
        var encoded = message.Append(WireWriter.BytesFieldSize(key.Length) + WireWriter.BytesFieldSize(valueBytes));
        var writer = new WireWriter(encoded);
        writer.BytesField(PutRequest.KeyFieldNumber, key);
        writer.BytesHeader(PutRequest.ValueFieldNumber, valueBytes);
        MemoryPlaces.Fill(encoded[^valueBytes..], seed);
        return message;
    }
}
