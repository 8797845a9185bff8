using System.Diagnostics.CodeAnalysis;
using System.Threading.Channels;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Internal.V1;
using KvCluster.Node.Transport;

namespace KvCluster.Tests.Node;

/// <summary>One side of the stream between two nodes, without a network.</summary>
public sealed class PeerLinkTests
{
    private readonly PeerLink _link = new();

    [Fact]
    public async Task Frames_OfASession_KeepTheirOrderAndShareMessages()
    {
        var pipe = new FakeStream { IsHeld = true };
        var session = RunAsync(pipe);
        for (var epoch = 1ul; epoch <= 4_000; epoch++)
            _link.Send(new Frame { Epoch = epoch });
        pipe.Release();
        var messages = await pipe.ReadFramesAsync(4_000);
        Assert.Equal(Enumerable.Range(1, 4_000).Select(epoch => (ulong)epoch), messages.SelectMany(message => message.Frames).Select(frame => frame.Epoch));
        Assert.True(messages.Count < 100, $"{messages.Count} messages");
        pipe.End();
        await session;
    }

    /// <summary>After its sender failed with an unexpected exception, a session only listened and looked alive.</summary>
    [Fact]
    public async Task Session_SenderFailsUnexpectedly_EndsWithThatFailure()
    {
        var session = _link.RunSessionAsync(new FakeStream(), new FailingStream(), static _ => { }, static () => { }, CancellationToken.None);
        _link.Send(new Frame { Epoch = 1 });
        var failure = await Assert.ThrowsAsync<InvalidCastException>(() => session.WaitAsync(Eventually.Limit));
        Assert.Equal("a bug", failure.Message);
        Assert.False(_link.IsUp);
    }

    private sealed class FailingStream : IAsyncStreamWriter<PeerMessage>
    {
        public WriteOptions? WriteOptions { get; set; }

        public Task WriteAsync(PeerMessage message) => WriteAsync(message, CancellationToken.None);

        public Task WriteAsync(PeerMessage message, CancellationToken cancellationToken) => Task.FromException(new InvalidCastException("a bug"));
    }

    // One shard's records used up the space for the frames of all shards and delayed their heartbeats.
    [Fact]
    public async Task Send_ReceiverDoesNotRead_DropsOnlyFramesBeyondTheShardsCredit()
    {
        const uint Others = 200;
        var pipe = new FakeStream { IsHeld = true };
        var session = RunAsync(pipe);
        var body = UnsafeByteOperations.UnsafeWrap(new byte[1 << 20]);
        for (var epoch = 1ul; epoch <= 500; epoch++)
            _link.Send(new Frame { Shard = 1, Epoch = epoch, Append = new Append { Bodies = { body } } });
        for (var shard = 2u; shard < 2 + Others; shard++)
            _link.Send(new Frame { Shard = shard, Append = new Append { Bodies = { UnsafeByteOperations.UnsafeWrap(new byte[1_000]) } } });
        pipe.Release();
        var messages = await pipe.ReadFramesAsync((int)Others + 7);
        var frames = messages.SelectMany(message => message.Frames).ToList();
        Assert.Equal(Others, (uint)frames.Count(frame => frame.Shard != 1));
        var epochs = frames.Where(frame => frame.Shard == 1).Select(frame => frame.Epoch).ToList();
        Assert.InRange(epochs.Count, 7, 9);
        Assert.Equal(Enumerable.Range(1, epochs.Count).Select(epoch => (ulong)epoch), epochs);
        // The frames of all other shards came before most of this shard's.
        Assert.True(frames.FindLastIndex(frame => frame.Shard != 1) < frames.Count - 5, "The frames of the other shards waited for those of one shard.");
        pipe.End();
        await session;
    }

    [Fact]
    public async Task Answers_ThatNobodyAwaits_AreSentWithTheNextMessage()
    {
        var pipe = new FakeStream();
        var session = RunAsync(pipe);
        // If the machine stalls within a turn, the answers are sent before the last one is added. That must not happen in most turns.
        var whole = 0;
        for (var turn = 0ul; turn < 30; turn++)
        {
            for (var shard = 0u; shard < 50; shard++)
                _link.Send(new Frame { Shard = shard, Epoch = turn, HeartbeatAck = new HeartbeatAck { Granted = true } });
            _link.Send(new Frame { Epoch = turn, HeartbeatAck = new HeartbeatAck { Awaited = true } });
            var messages = await pipe.ReadFramesAsync(51);
            Assert.Equal(51, messages.Sum(message => message.Frames.Count));
            whole += messages.Count == 1 ? 1 : 0;
        }
        Assert.True(whole >= 20, $"{whole} of 30 turns were one message.");
        _link.Send(new Frame { Epoch = 99, HeartbeatAck = new HeartbeatAck { Granted = true } });
        Assert.Equal(99ul, (await pipe.ReadFramesAsync(1))[0].Frames[0].Epoch);
        pipe.End();
        await session;
    }

    // With 64 busy shards almost every record and every acknowledgement was a message of its own.
    [Fact]
    public async Task Leave_FramesOfAPass_AreOneMessage()
    {
        var pipe = new FakeStream();
        var session = RunAsync(pipe);
        for (var shard = 1u; shard < PeerLink.LeftFramesMax; shard++)
            _link.Leave(new Frame { Shard = shard, Ack = new Ack() });
        Assert.False(pipe.TryRead(out _));
        _link.SendLeft();
        Assert.Equal(PeerLink.LeftFramesMax - 1, Assert.Single(await pipe.ReadFramesAsync(1)).Frames.Count);
        // Nothing is left, so not even an empty message follows.
        _link.SendLeft();
        _link.Send(new Frame { Epoch = 99 });
        Assert.Equal(99ul, Assert.Single(Assert.Single(await pipe.ReadFramesAsync(1)).Frames).Epoch);
        pipe.End();
        await session;
    }

    [Fact]
    public async Task Leave_BeforeAFrameThatDoesNotWait_IsSentWithIt()
    {
        var pipe = new FakeStream();
        var session = RunAsync(pipe);
        _link.Leave(new Frame { Shard = 1, Ack = new Ack() });
        _link.Send(new Frame { Shard = 2, Heartbeat = new Heartbeat { Awaited = true } });
        await pipe.ReadFramesAsync(2);
        pipe.End();
        await session;
    }

    [Theory]
    [InlineData(PeerLink.LeftFramesMax, 0)]
    [InlineData(1, (int)PeerLink.LeftBytesMax)]
    public async Task Leave_WhenMuchWaits_IsSentBeforeTheEndOfThePass(int frames, int bodyBytes)
    {
        var pipe = new FakeStream();
        var session = RunAsync(pipe);
        for (var shard = 1u; shard <= frames; shard++)
            _link.Leave(new Frame { Shard = shard, Append = new Append { Bodies = { UnsafeByteOperations.UnsafeWrap(new byte[bodyBytes]) } } });
        await pipe.ReadFramesAsync(frames);
        pipe.End();
        await session;
    }

    // On an idle node with 100 shards they were sent at once, in two to four more messages a second to each other node. Each message wakes several threads here
    // and there.
    [Fact]
    public void Of_FramesOfQuiescentLeadersAndTheirFollowers_WaitForTheNextMessage()
    {
        Assert.Equal(Urgency.None, FrameUrgency.Of(new Frame { Heartbeat = new Heartbeat { RestUs = 5_000_000 } }));
        Assert.Equal(Urgency.None, FrameUrgency.Of(new Frame { HeartbeatAck = new HeartbeatAck() }));
        Assert.Equal(Urgency.Beat, FrameUrgency.Of(new Frame { Heartbeat = new Heartbeat { LeaseUs = 500_000 } }));
        Assert.Equal(Urgency.Answer, FrameUrgency.Of(new Frame { HeartbeatAck = new HeartbeatAck { Granted = true } }));
        Assert.Equal(Urgency.Now, FrameUrgency.Of(new Frame { Heartbeat = new Heartbeat { Awaited = true } }));
        Assert.Equal(Urgency.Now, FrameUrgency.Of(new Frame { HeartbeatAck = new HeartbeatAck { Awaited = true } }));
        Assert.Equal(Urgency.Now, FrameUrgency.Of(new Frame { Append = new Append() }));
    }

    // Each link had a timer for this. Together with that for silent nodes they were most of an idle node's wake-ups by timers.
    [Fact]
    public async Task SayAlive_SendsWhatWaitsForIt_OrAnEmptyMessage()
    {
        // Without a session it leaves nothing behind.
        _link.SayAlive();
        var pipe = new FakeStream();
        var session = RunAsync(pipe);
        _link.Send(new Frame { Epoch = 1, HeartbeatAck = new HeartbeatAck() });
        await Task.Delay(300);
        Assert.False(pipe.TryRead(out _));
        Assert.Equal(1ul, Assert.Single((await NextAsync()).Frames).Epoch);
        Assert.Empty((await NextAsync()).Frames);
        pipe.End();
        await session;

        // Again and again, because one that comes while a message is being sent has no other sent.
        async Task<PeerMessage> NextAsync()
        {
            PeerMessage? message;
            while (!pipe.TryRead(out message))
            {
                _link.SayAlive();
                await Task.Delay(1);
            }
            return message;
        }
    }

    // A peer that was stopped or cut off kept its connection open.
    [Fact]
    public async Task EndIfUnheard_AfterSixteenTimesWithoutAMessage_EndsTheSession()
    {
        var pipe = new FakeStream();
        using var received = new SemaphoreSlim(0);
        var session = _link.RunSessionAsync(pipe, pipe, _ => received.Release(), static () => { }, CancellationToken.None);
        for (var round = 0; round < 2; round++)
        {
            for (var said = 1; said < PeerLink.UnheardMax; said++)
                _link.SayAlive();
            _link.EndIfUnheard();
            Assert.False(_link.IsUnheard);
            pipe.Arrive(new PeerMessage { Frames = { new Frame { Epoch = 1 } } });
            Assert.True(await received.WaitAsync(Eventually.Limit));
        }
        for (var said = 0; said < PeerLink.UnheardMax; said++)
            _link.SayAlive();
        Assert.True(_link.IsUnheard);
        _link.EndIfUnheard();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => session.WaitAsync(Eventually.Limit));
        Assert.False(_link.IsUp);
    }

    // A record of 16 MiB takes longer than four seconds over a network of 30 Mbit/s. It was begun again and again, and with it the stream of all shards.
    [Fact]
    public void IsUnheard_WhilePartsOfAMessageArrive_IsFalse()
    {
        for (var said = 0; said < 3 * PeerLink.UnheardMax; said++)
        {
            _link.SayAlive();
            if (said % (PeerLink.UnheardMax - 1) == 0)
                _link.HeardPart();
            Assert.False(_link.IsUnheard);
        }
    }

    // Nothing was heard of a node for long, and the first session with it ended as it began.
    [Fact]
    public async Task EndIfUnheard_OfASessionThatBeginsAfterALongTimeWithoutOne_DoesNotEndIt()
    {
        for (var said = 0; said < PeerLink.UnheardMax; said++)
            _link.SayAlive();
        Assert.True(_link.IsUnheard);
        var pipe = new FakeStream();
        var session = RunAsync(pipe);
        _link.EndIfUnheard();
        _link.Send(new Frame { Epoch = 1 });
        Assert.Equal(1ul, (await pipe.ReadFramesAsync(1))[0].Frames[0].Epoch);
        pipe.End();
        await session;
    }

    [Fact]
    public async Task Send_WithoutASession_IsDropped()
    {
        _link.Send(new Frame { Epoch = 1 });
        var pipe = new FakeStream();
        var session = RunAsync(pipe);
        _link.Send(new Frame { Epoch = 2 });
        Assert.Equal(2ul, (await pipe.ReadFramesAsync(1))[0].Frames[0].Epoch);
        pipe.End();
        await session;
        Assert.False(_link.IsUp);
    }

    [Fact]
    public async Task RunSession_WhileAnotherRuns_EndsTheOlder()
    {
        var (older, newer) = (new FakeStream(), new FakeStream());
        var first = RunAsync(older);
        var second = RunAsync(newer);
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => first.WaitAsync(Eventually.Limit));
        Assert.True(_link.IsUp);
        newer.End();
        await second;
    }

    [Fact]
    public async Task RunSession_PassesOnReceivedFrames()
    {
        var pipe = new FakeStream();
        var received = new List<ulong>();
        var session = _link.RunSessionAsync(pipe, pipe, frame => received.Add(frame.Epoch), static () => { }, CancellationToken.None);
        pipe.Arrive(new PeerMessage { Frames = { new Frame { Epoch = 1 }, new Frame { Epoch = 2 } } });
        pipe.Arrive(new PeerMessage { Frames = { new Frame { Epoch = 3 } } });
        pipe.End();
        await session;
        Assert.Equal([1ul, 2ul, 3ul], received);
    }

    /// <summary>Each frame woke its replica's thread, which began with the first one alone.</summary>
    [Fact]
    public async Task RunSession_TellsOnceOfTheFramesOfAMessage()
    {
        var pipe = new FakeStream();
        var (frames, told) = (0, new List<int>());
        var session = _link.RunSessionAsync(pipe, pipe, _ => frames++, () => told.Add(frames), CancellationToken.None);
        pipe.Arrive(new PeerMessage { Frames = { Enumerable.Range(0, 10).Select(static shard => new Frame { Shard = (uint)shard }) } });
        pipe.Arrive(new PeerMessage { Frames = { Enumerable.Range(0, 100).Select(static shard => new Frame { Shard = (uint)shard }) } });
        pipe.End();
        await session;
        Assert.Equal([10, 74, 110], told);
    }

    private Task RunAsync(FakeStream pipe) => _link.RunSessionAsync(pipe, pipe, _ => { }, static () => { }, CancellationToken.None);

    private sealed class FakeStream : IAsyncStreamReader<PeerMessage>, IAsyncStreamWriter<PeerMessage>
    {
        private readonly Channel<PeerMessage> _incoming = Channel.CreateUnbounded<PeerMessage>();
        private readonly Channel<PeerMessage> _written = Channel.CreateUnbounded<PeerMessage>();
        private readonly TaskCompletionSource _released = new(TaskCreationOptions.RunContinuationsAsynchronously);
        private int _framesWritten;

        public bool IsHeld { get; init; }

        public int FramesWritten => Volatile.Read(ref _framesWritten);

        public PeerMessage Current { get; private set; } = null!;

        public WriteOptions? WriteOptions { get; set; }

        public void Release() => _released.SetResult();

        public void Arrive(PeerMessage message) => Assert.True(_incoming.Writer.TryWrite(message));

        public void End() => _incoming.Writer.Complete();

        public bool TryRead([NotNullWhen(true)] out PeerMessage? message) => _written.Reader.TryRead(out message);

        public async Task<List<PeerMessage>> ReadFramesAsync(int count)
        {
            var messages = new List<PeerMessage>();
            while (messages.Sum(message => message.Frames.Count) < count)
                messages.Add(await _written.Reader.ReadAsync().AsTask().WaitAsync(Eventually.Limit));
            return messages;
        }

        public async Task<bool> MoveNext(CancellationToken cancellationToken)
        {
            if (!await _incoming.Reader.WaitToReadAsync(cancellationToken))
                return false;
            Current = await _incoming.Reader.ReadAsync(cancellationToken);
            return true;
        }

        public async Task WriteAsync(PeerMessage message)
        {
            if (IsHeld)
                await _released.Task;
            Interlocked.Add(ref _framesWritten, message.Frames.Count);
            Assert.True(_written.Writer.TryWrite(message));
        }

        public Task WriteAsync(PeerMessage message, CancellationToken cancellationToken) => WriteAsync(message);
    }
}
