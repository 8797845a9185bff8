using System.Collections.Concurrent;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Node.Api.Calls;
using KvCluster.Node.Api.Reads;
using KvCluster.Node.Api.Watches;
using KvCluster.Node.Watching;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.Storage.Context;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Journal;
using KvCluster.V1;
using KvCluster.Wire;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Node.Watching;

/// <summary>Each of 200 watchers encoded the same value of 8 MiB. Later those of a range shared it, and each of 200 ranges encoded it.</summary>
public sealed class SharedMessageTests
{
    [Fact]
    public void Share_ForWatchersOfTheSameEventsAndOptions_EncodesOnce()
    {
        using var bench = new WatchBench();
        var encoded = 0;
        var first = bench.Hub.Share(Part(), 10, Encode);
        var second = bench.Hub.Share(Part(), 10, Encode);
        Assert.Same(first, second);
        Assert.Equal(1, encoded);
        WatchPart[] parts = [Part(record: 8), Part(first: 1), Part(count: 1), Part(until: 10), Part(options: 1), Part(isOfJournal: true)];
        var others = parts.Select(part => bench.Hub.Share(part, 10, Encode)).ToList();
        Assert.Equal(1 + parts.Length, encoded);
        // It stays as it is for the second one when the first one and the hub have returned it.
        first.Return();
        bench.Hub.Look();
        Assert.Equal([1, 2, 3], second.Written.ToArray());
        second.Return();
        bench.Hub.Share(Part(), 10, Encode).Return();
        Assert.Equal(2 + parts.Length, encoded);
        others.ForEach(static other => other.Return());

        MessageBytes Encode()
        {
            encoded++;
            var message = MessageBytes.Rent();
            message.Append([1, 2, 3]);
            return message;
        }
    }

    [Fact]
    public async Task Put_InManyWatchedRanges_IsOneMessageForAllOfThem()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.LeaderOfAsync(0);
        var (shard, lookup) = (cluster.ShardsOf(1).Find("key"u8)!, new ShardLookup(new(1), cluster.ShardsOf(1), hot: null!));
        // The hub forgets nothing while no time passes.
        var (time, memory) = (new ManualTime(), new CallMemory(CallMemory.MebibytesDefault));
        await using var hubs = new WatchHubs(new StoreOptions(), time, NullLogger<WatchHubs>.Instance);
        using var kept = new KeptSnapshots(time, TimeSpan.FromMinutes(1));
        var watches = new KvWatches(lookup, hubs, new ReadThreads(int.MaxValue, threads: 0), memory, time, kept);
        using var callers = new CancellationTokenSource();
        WatchRequest[] requests =
        [
            new(), new() { Prefix = Bytes("k") }, new() { Prefix = Bytes("key"), Exact = true }, new() { Start = Bytes("j"), End = Bytes("l") },
            new() { Prefix = Bytes("ke"), WithSets = true },
        ];
        var streams = requests.Select(static _ => new Caller()).ToList();
        var watching = requests.Select((request, index) => watches.WatchAsync(shard, Read(request), streams[index], callers.Token)).ToList();
        await Eventually.TrueAsync(() => streams.TrueForAll(static stream => !stream.Messages.IsEmpty), "each watcher knows its position");
        await cluster.PutAsync(new PutRequest { Key = Bytes("key"), Value = ByteString.CopyFrom(new byte[10_000]) });
        await Eventually.TrueAsync(() => streams.TrueForAll(static stream => stream.Messages.Any(IsLarge)), "each watcher has the event");
        Assert.Single(streams.SelectMany(static stream => stream.Messages).Where(IsLarge).Distinct());
        await callers.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => Task.WhenAll(watching).WaitAsync(Eventually.Limit));
    }

    private static bool IsLarge(MessageBytes message) => message.Count > 10_000;

    private static ByteString Bytes(string text) => ByteString.CopyFromUtf8(text);

    private static WatchQuery Read(WatchRequest request)
    {
        Assert.Null(WatchQuery.TryRead(request.ToByteArray(), out var query));
        return query;
    }

    // Another object each time, with the same content if the arguments are the same.
    private static WatchPart Part(ulong record = 4, int first = 0, int count = 2, ulong until = 9, int options = 0, bool isOfJournal = false)
    {
        var operations = new ByteBuffer(16);
        for (byte key = 1; key <= 3; key++)
            Operations.Put(operations, [key], "value"u8);
        var previous = new RecordRef(new Etag(1, record), default, 0, 0, 0, RecordFlags.None);
        var batch = WatchBatch.Decode(RecordBody.Encode(previous, RecordFlags.None, 1, 3, 0, operations.Written, out _));
        return new WatchPart([new WatchRun(batch, first, count)], new Etag(1, until), options, isOfJournal);
    }

    /// <summary>A caller that keeps its messages, so that none is used again.</summary>
    private sealed class Caller : IServerStreamWriter<MessageBytes>
    {
        public ConcurrentQueue<MessageBytes> Messages { get; } = new();

        public WriteOptions? WriteOptions { get; set; }

        public Task WriteAsync(MessageBytes message)
        {
            Messages.Enqueue(message);
            return Task.CompletedTask;
        }

        public Task WriteAsync(MessageBytes message, CancellationToken cancellationToken) => WriteAsync(message);
    }
}
