using Google.Protobuf;
using Grpc.Core;
using KvCluster.Node.Api.Calls;
using KvCluster.Node.Api.Errors;
using KvCluster.Node.Api.Reads;
using KvCluster.Node.Runtime;
using KvCluster.Node.Telemetry;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Tests.Node;

/// <summary>Reads that wait for their turn. The node has one read thread, which the test holds, like a disk that is as slow as the test wants.</summary>
public sealed class KvReadsTests : IAsyncLifetime
{
    private const int SnapshotsMax = 32;
    private const int Keys = 100;

    private readonly ManualTime _time = new() { PerLook = TimeSpan.FromMilliseconds(1) };
    private readonly List<string> _order = [];
    private NodeCluster _cluster = null!;
    private NodeMetrics _metrics = null!;

    public async Task InitializeAsync()
    {
        _cluster = await NodeCluster.StartAsync(new StoreOptions { Pages = new PageStoreOptions { SnapshotsMax = SnapshotsMax } });
        _metrics = new NodeMetrics(new NodeIdentity("local", "", new(1), 1, ""), shardSeriesMax: 0);
        await _cluster.PutAsync(Put("old"));
    }

    public async Task DisposeAsync()
    {
        await _metrics.DisposeAsync();
        await _cluster.DisposeAsync();
    }

    /// <summary>
    /// A GetMany kept its place for all of its keys, up to 10,000. With 22 of them over pages that were not in memory, every other read of the node
    /// waited for minutes.
    /// </summary>
    [Fact]
    public async Task GetMany_OfManyKeys_TakesTurnsWithOthersAndKeepsItsSnapshot()
    {
        await using var threads = new ReadThreads(hereMax: 0, threads: 1);
        threads.Run();
        var reads = Create(threads);
        using var disk = await HoldAsync(threads);
        var many = ManyAsync(reads, "many", Keys);
        var change = RunAsync(threads, () => _cluster.KvOf(1).Put(Put("new")));
        var get = GetAsync(reads, "get");
        disk.Release();
        await change.WaitAsync(Eventually.Limit);
        Assert.Equal("new", GetResponse.Parser.ParseFrom((await get.WaitAsync(Eventually.Limit)).Answer).Value.ToStringUtf8());
        var answer = GetManyResponse.Parser.ParseFrom((await many.WaitAsync(Eventually.Limit)).Answer);
        Assert.Equal(Enumerable.Repeat("old", Keys), answer.Entries.Select(static entry => entry.Value.ToStringUtf8()));
        Assert.Equal(["get", "many"], _order);
    }

    /// <summary>It was read to its end although its caller had gone.</summary>
    [Fact]
    public async Task GetMany_CallerGoneBetweenTurns_Ends()
    {
        await using var threads = new ReadThreads(hereMax: 1, threads: 1);
        threads.Run();
        using var disk = await HoldAsync(threads);
        using var caller = new CancellationTokenSource();
        var many = ManyAsync(Create(threads), "many", Keys, new CallTarget(new(0), 0, 0, caller.Token));
        var leaving = RunAsync(threads, caller.Cancel);
        disk.Release();
        await leaving.WaitAsync(Eventually.Limit);
        Assert.Equal("CANCELLED", (await many.WaitAsync(Eventually.Limit)).Reason);
    }

    /// <summary>Reads whose deadline had passed while they waited were executed anyway, and those behind them waited longer.</summary>
    [Theory]
    [InlineData(0)]
    [InlineData(2)]
    [InlineData(Keys)]
    public async Task Read_DeadlinePassesBeforeItsTurn_IsRefused(int keys)
    {
        await using var threads = new ReadThreads(hereMax: 1, threads: 1);
        threads.Run();
        var reads = Create(threads);
        using var disk = await HoldAsync(threads);
        // Far more than the clock advances when the test itself looks at it.
        var target = new CallTarget(new(0), 0, _time.GetTimestamp() + TimeSpan.FromMinutes(10).Ticks, CancellationToken.None) { ReadsElsewhere = true };
        // The deadline passes before the first turn of a short read, and before the second turn of a read of many keys.
        var late = keys == Keys ? null : RunAsync(threads, () => _time.Advance(TimeSpan.FromMinutes(20)));
        var read = keys == 0 ? GetAsync(reads, "read", target) : ManyAsync(reads, "read", keys, target);
        late ??= RunAsync(threads, () => _time.Advance(TimeSpan.FromMinutes(20)));
        disk.Release();
        await late.WaitAsync(Eventually.Limit);
        Assert.Equal("DEADLINE_PASSED", (await read.WaitAsync(Eventually.Limit)).Reason);
    }

    /// <summary>
    /// A confirmed read held its snapshot while it waited for its turn. Over a slow disk, as many such reads as there are snapshots made every other
    /// read of the shard fail.
    /// </summary>
    [Theory]
    [InlineData(0)]
    [InlineData(2)]
    [InlineData(Keys)]
    public async Task ConfirmedReads_WaitingForTheirTurn_HoldNoSnapshot(int keys)
    {
        const int Reads = 4 * SnapshotsMax;
        await using var threads = new ReadThreads(hereMax: 0, threads: 1);
        threads.Run();
        var reads = Create(threads);
        using var first = await HoldAsync(threads);
        var quorum = new ReadOptions { Mode = ReadMode.Quorum };
        var waiting = Enumerable.Range(0, Reads)
            .Select(_ => keys == 0 ? GetAsync(reads, "read", read: quorum) : ManyAsync(reads, "read", keys, read: quorum)).ToList();
        // Queued behind the turns in which the reads find that they must be confirmed.
        var holding = HoldAsync(threads);
        first.Release();
        using var second = await holding;
        // A later read is confirmed no earlier than these. If they are not waiting again yet, the test shows less.
        Assert.NotNull(await _cluster.ShardsOf(1).Find("k"u8)!.Replica!.Reads.ConfirmAsync(CancellationToken.None));
        second.Release();
        Assert.All(await Task.WhenAll(waiting).WaitAsync(Eventually.Limit), static outcome => Assert.Equal("", outcome.Reason));
    }

    [Fact]
    public async Task GetMany_MoreCallersThanRunAtOnce_AnswersAll()
    {
        const int Reads = 4 * KvReads.LongReadsMax;
        await using var threads = new ReadThreads(hereMax: 0, threads: 2);
        threads.Run();
        var reads = Create(threads);
        using var caller = new CancellationTokenSource();
        for (var round = 0; round < 2; round++)
        {
            var waiting = Enumerable.Range(0, Reads).Select(number => ManyAsync(
                reads, "many", Keys, new CallTarget(new(0), 0, 0, number % 2 == 0 ? caller.Token : CancellationToken.None))).ToList();
            await caller.CancelAsync();
            var outcomes = await Task.WhenAll(waiting).WaitAsync(Eventually.Limit);
            Assert.All(outcomes.Where((_, number) => number % 2 == 0), static outcome => Assert.Contains(outcome.Reason, (string[])["", "CANCELLED"]));
            Assert.All(outcomes.Where((_, number) => number % 2 == 1), static outcome => Assert.Equal("", outcome.Reason));
        }
    }

    /// <summary>The calling thread belongs to a stream, and all callers of the stream wait for it.</summary>
    [Fact]
    public async Task Read_MarkedElsewhereOrOfManyKeys_DoesNotBlockTheCallingThread()
    {
        await using var threads = new ReadThreads(hereMax: 4, threads: 1);
        threads.Run();
        var reads = Create(threads);
        using var disk = await HoldAsync(threads);
        var elsewhere = new CallTarget(new(0), 0, 0, CancellationToken.None) { ReadsElsewhere = true };
        Task<Outcome>[] waiting =
            [GetAsync(reads, "get", elsewhere), ManyAsync(reads, "few", 2, elsewhere), ManyAsync(reads, "many", KvReads.KeysOfOneTurnMax + 1)];
        Assert.Equal("", (await GetAsync(reads, "here")).Reason);
        Assert.Equal("", (await ManyAsync(reads, "here", KvReads.KeysOfOneTurnMax)).Reason);
        Assert.All(waiting, static read => Assert.False(read.IsCompleted));
        disk.Release();
        Assert.All(await Task.WhenAll(waiting).WaitAsync(Eventually.Limit), static outcome => Assert.Equal("", outcome.Reason));
    }

    /// <summary>Kestrel counts streams whose handlers have not ended, so a caller whose scans waited for the disk could cut the connection of others.</summary>
    [Fact]
    public async Task Scan_WhoseCallerGoesWhileItWaitsForTheDisk_EndsAtOnceAndHoldsItsPageUntilThat()
    {
        await using var threads = new ReadThreads(hereMax: 0, threads: 1);
        threads.Run();
        var lookup = new ShardLookup(new(1), _cluster.ShardsOf(1), _metrics.Activity.Hot);
        var memory = new CallMemory(CallMemory.MebibytesMin);
        using var kept = new KeptSnapshots(TimeProvider.System, TimeSpan.FromMinutes(1));
        var scans = new KvScans(lookup, new ReadOpener(lookup, TimeProvider.System), threads, kept, memory, TimeProvider.System);
        using var disk = await HoldAsync(threads);
        using var caller = new CancellationTokenSource();
        var scanning = scans.RunAsync(MessageBytes.Rent(), new NoPages(), 0, caller.Token);
        await Eventually.TrueAsync(() => memory.Replies.Taken > 0, "the scan waits for its page");
        await caller.CancelAsync();
        Assert.Equal("CANCELLED", (await scanning.WaitAsync(Eventually.Limit))!.Reason);
        Assert.NotEqual(0, memory.Replies.Taken);
        disk.Release();
        await Eventually.TrueAsync(() => memory.Replies.Taken == 0 && memory.Requests.Taken == 0, "the page is filled, and nothing is held for it any more");
    }

    private KvReads Create(ReadThreads threads)
    {
        var lookup = new ShardLookup(new(1), _cluster.ShardsOf(1), _metrics.Activity.Hot);
        var opener = new ReadOpener(lookup, TimeProvider.System);
        return new KvReads(
            lookup, opener, threads,
            new KvQueries(
                lookup, opener, threads, new KeptSnapshots(_time, TimeSpan.FromMinutes(1)), QueryMemory.For(CallMemory.MebibytesDefault), _time),
            _time);
    }

    private static PutRequest Put(string value) => new() { Key = ByteString.CopyFromUtf8("k"), Value = ByteString.CopyFromUtf8(value) };

    private Task<Outcome> GetAsync(KvReads reads, string name, CallTarget target = default, ReadOptions? read = null)
    {
        var sink = new Sink(name, _order, new TaskCompletionSource<Outcome>(TaskCreationOptions.RunContinuationsAsynchronously));
        return EndAsync(reads.GetAsync(new GetRequest { Key = ByteString.CopyFromUtf8("k"), Read = read }.ToByteArray(), target, sink), sink);
    }

    private Task<Outcome> ManyAsync(KvReads reads, string name, int keys, CallTarget target = default, ReadOptions? read = null)
    {
        var sink = new Sink(name, _order, new TaskCompletionSource<Outcome>(TaskCreationOptions.RunContinuationsAsynchronously));
        var request = new GetManyRequest { Keys = { Enumerable.Repeat(ByteString.CopyFromUtf8("k"), keys) }, Read = read };
        return EndAsync(reads.GetManyAsync(request.ToByteArray(), target, sink), sink);
    }

    private static async Task<Outcome> EndAsync(ValueTask running, Sink sink)
    {
        await running;
        return await sink.Told.Task;
    }

    /// <summary>Takes the only read thread.</summary>
    private static async Task<Held> HoldAsync(ReadThreads threads)
    {
        var held = new Held();
        var begun = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        _ = RunAsync(threads, () =>
        {
            begun.SetResult();
            held.Wait();
        });
        await begun.Task.WaitAsync(Eventually.Limit);
        return held;
    }

    private static async Task RunAsync(ReadThreads threads, Action read)
    {
        var place = await threads.EnterAsync(isElsewhere: true);
        try
        {
            read();
        }
        finally
        {
            await place.LeaveAsync();
        }
    }

    /// <summary>A caller to whom nothing may be sent.</summary>
    private sealed class NoPages : IServerStreamWriter<MessageBytes>
    {
        public WriteOptions? WriteOptions { get; set; }

        public Task WriteAsync(MessageBytes message) => throw new InvalidOperationException("The caller has gone.");

        public Task WriteAsync(MessageBytes message, CancellationToken cancellationToken) => WriteAsync(message);
    }

    /// <param name="Reason">Why there is no answer, or "" if there is one.</param>
    private sealed record Outcome(string Reason, byte[] Answer);

    private readonly record struct Sink(string Name, List<string> Order, TaskCompletionSource<Outcome> Told) : IReplySink
    {
        public int ReplyBytesMax => int.MaxValue;

        public ApiError? Answer<T>(scoped in T answer)
            where T : IAnswer, allows ref struct
        {
            var bytes = new byte[answer.Size];
            answer.WriteTo(bytes);
            Tell(new Outcome("", bytes));
            return null;
        }

        public void AnswerChange<T>(scoped in T answer)
            where T : IAnswer, allows ref struct => throw new InvalidOperationException("A read has no outcome of a change.");

        public void Refuse(ApiError refusal) => Tell(new Outcome(refusal.Reason, []));

        private void Tell(Outcome outcome)
        {
            lock (Order)
                Order.Add(Name);
            Told.SetResult(outcome);
        }
    }

    /// <summary>Blocks a thread, but not for longer than the test.</summary>
    private sealed class Held : IDisposable
    {
        // Not disposed, because the thread may be about to wait.
        private readonly ManualResetEventSlim _released = new();

        public void Wait() => _released.Wait();

        public void Release() => _released.Set();

        public void Dispose() => Release();
    }
}
