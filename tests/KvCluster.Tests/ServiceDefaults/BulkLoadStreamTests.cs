using System.Threading.Channels;
using Grpc.Core;
using KvCluster.ServiceDefaults.Exchanges;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.Wire;

namespace KvCluster.Tests.ServiceDefaults;

/// <summary>One stream of a load, without a server: how far it reads ahead, and how it ends.</summary>
public sealed class BulkLoadStreamTests
{
    private readonly Channel<MessageBytes> _chunks = Channel.CreateUnbounded<MessageBytes>();
    private readonly List<TaskCompletionSource<MessageBytes>> _begun = [];
    private readonly ByteBudget _replies = new(1 << 20);
    private readonly Answers _answers = new();

    [Fact]
    public async Task Chunks_AreReadAheadOnlyByAFew_AndAnsweredInOrder()
    {
        var running = Run(CancellationToken.None);
        for (var chunk = 0; chunk < 20; chunk++)
            _chunks.Writer.TryWrite(MessageBytes.Rent());
        _chunks.Writer.Complete();
        await Eventually.TrueAsync(() => Begun >= 4, "four chunks are under way");
        // The last of them to be done answers for nobody before it.
        lock (_begun)
        {
            for (var chunk = _begun.Count - 1; chunk > 0; chunk--)
                _begun[chunk].SetResult(MessageBytes.Rent());
            Assert.Equal(4, _begun.Count);
        }
        Assert.Equal(0, _answers.Written);
        for (var chunk = 0; chunk < 20; chunk++)
        {
            await Eventually.TrueAsync(() => Begun > chunk, "the next chunk is begun");
            lock (_begun)
                _begun[chunk].TrySetResult(MessageBytes.Rent());
        }
        await running.WaitAsync(Eventually.Limit);
        Assert.Equal(20, _answers.Written);
    }

    [Fact]
    public async Task Refusal_EndsTheStream_WhenAllThatIsUnderWayHasEnded()
    {
        var running = Run(CancellationToken.None);
        for (var chunk = 0; chunk < 3; chunk++)
            _chunks.Writer.TryWrite(MessageBytes.Rent());
        await Eventually.TrueAsync(() => Begun == 3, "three chunks are under way");
        var refusal = MessageBytes.Rent();
        refusal.Error = StatusDetails.Create(StatusCode.ResourceExhausted, "full", StatusDetails.Info("DISK_FULL", "no"));
        _begun[0].SetResult(MessageBytes.Rent());
        _begun[1].SetResult(refusal);
        await Eventually.TrueAsync(() => _answers.Written == 1, "the first one is acknowledged");
        Assert.False(running.IsCompleted);
        _begun[2].SetResult(MessageBytes.Rent());
        await RefusedAsync(running, "DISK_FULL");
        Assert.Equal(1, _answers.Written);
    }

    [Fact]
    public async Task Caller_WhoDoesNotReadWhileMemoryIsShort_IsEnded()
    {
        _answers.Stalls = true;
        _replies.Take(1 << 20);
        var running = Run(CancellationToken.None);
        _chunks.Writer.TryWrite(MessageBytes.Rent());
        await Eventually.TrueAsync(() => Begun == 1, "the chunk is under way");
        _begun[0].SetResult(MessageBytes.Rent());
        await RefusedAsync(running, "NOT_READ");
    }

    [Fact]
    public async Task Caller_WhoGoesAway_EndsIt()
    {
        using var caller = new CancellationTokenSource();
        var running = Run(caller.Token);
        _chunks.Writer.TryWrite(MessageBytes.Rent());
        await Eventually.TrueAsync(() => Begun == 1, "the chunk is under way");
        await caller.CancelAsync();
        Assert.False(running.IsCompleted);
        _begun[0].SetResult(MessageBytes.Rent());
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => running.WaitAsync(Eventually.Limit));
    }

    private int Begun
    {
        get
        {
            lock (_begun)
                return _begun.Count;
        }
    }

    private Task Run(CancellationToken caller) => new BulkLoadStream(BeginAsync, _answers, _replies).RunAsync(new Reader(_chunks.Reader), caller);

    private Task<MessageBytes> BeginAsync(MessageBytes chunk, ulong number, CancellationToken ended)
    {
        lock (_begun)
        {
            _begun.Add(new TaskCompletionSource<MessageBytes>(TaskCreationOptions.RunContinuationsAsynchronously));
            Assert.Equal((ulong)_begun.Count, number);
            return _begun[^1].Task;
        }
    }

    private static Task RefusedAsync(Task running, string reason) =>
        Refusal.ExpectAsync(() => running.WaitAsync(Eventually.Limit), StatusCode.ResourceExhausted, reason);

    private sealed class Reader(ChannelReader<MessageBytes> chunks) : IAsyncStreamReader<MessageBytes>
    {
        public MessageBytes Current { get; private set; } = MessageBytes.Rent();

        public async Task<bool> MoveNext(CancellationToken cancellationToken)
        {
            if (!await chunks.WaitToReadAsync(cancellationToken))
                return false;
            Current = await chunks.ReadAsync(cancellationToken);
            return true;
        }
    }

    private sealed class Answers : IServerStreamWriter<MessageBytes>
    {
        private int _written;

        public int Written => Volatile.Read(ref _written);

        public bool Stalls { get; set; }

        public WriteOptions? WriteOptions { get; set; }

        public Task WriteAsync(MessageBytes message, CancellationToken cancellationToken) => WriteAsync(message);

        public Task WriteAsync(MessageBytes message)
        {
            Interlocked.Increment(ref _written);
            return Stalls ? new TaskCompletionSource().Task : Task.CompletedTask;
        }
    }
}
