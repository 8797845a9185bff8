using Google.Protobuf;
using KvCluster.Disk;
using KvCluster.Internal.V1;
using KvCluster.Node.Shards.Context;
using KvCluster.Node.Transport;
using KvCluster.Storage.Threads;

namespace KvCluster.Tests.Node;

/// <summary>Frames of the replicas of one writer thread, which the test runs.</summary>
public sealed class PassTransportTests
{
    private readonly StepExecutor _writer = new();
    private readonly CountingPeers _peers = new();
    private readonly PassTransport _pass;

    public PassTransportTests() => _pass = new PassTransport(_peers, _writer);

    [Fact]
    public void Send_RecordsAndAcknowledgementsOfManyShards_EndsOnePassBehindAllTurns()
    {
        for (var shard = 1u; shard <= 64; shard++)
            Post(Acknowledgement(shard), Record(shard, bodyBytes: 200));
        Run();
        Assert.Equal([.. Enumerable.Repeat("leave", 128), "end"], _peers.Told);
    }

    [Fact]
    public void Send_AfterThePassHasEnded_EndsAnother()
    {
        for (var pass = 0; pass < 3; pass++)
        {
            Post(Acknowledgement(1));
            Run();
        }
        Assert.Equal(["leave", "end", "leave", "end", "leave", "end"], _peers.Told);
    }

    [Fact]
    public void Send_WhatSomebodyWaitsForOrALargeRecord_DoesNotWait()
    {
        Frame[] frames =
        [
            new() { Heartbeat = new Heartbeat { Awaited = true } }, new() { PreVote = new PreVote() }, new() { Append = new Append() },
            Record(1, PassTransport.SmallBytesMax + 1), new() { Append = new Append { Bodies = { Body(1), Body(1) } } },
        ];
        Post(frames);
        Run();
        Assert.Equal(Enumerable.Repeat("send", frames.Length), _peers.Told);
    }

    /// <summary>An idle thread has no pass that others could share.</summary>
    [Fact]
    public void Send_WhileNothingIsQueued_DoesNotWait()
    {
        var pass = new PassTransport(_peers, new Idle());
        pass.Send(new(2), Acknowledgement(1));
        Assert.Equal(["send"], _peers.Told);
    }

    private static Frame Acknowledgement(uint shard) => new() { Shard = shard, Ack = new Ack() };

    private static Frame Record(uint shard, int bodyBytes) => new() { Shard = shard, Append = new Append { Bodies = { Body(bodyBytes) } } };

    private static ByteString Body(int bytes) => UnsafeByteOperations.UnsafeWrap(new byte[bytes]);

    private void Post(params Frame[] frames) => _writer.Post(new WorkAction(() =>
    {
        foreach (var frame in frames)
            _pass.Send(new(2), frame);
    }));

    private void Run()
    {
        while (_writer.RunOne())
        {
        }
    }

    private sealed class Idle : ISerialExecutor
    {
        public bool IsIdle => true;

        public bool HasWork => false;

        public void Post(IWorkItem item) => Assert.Fail("Nothing was to be posted.");
    }

    private sealed class CountingPeers : IPeerTransport
    {
        public List<string> Told { get; } = [];

        public void Send(NodeId node, Frame frame) => Told.Add("send");

        public void Leave(NodeId node, Frame frame) => Told.Add("leave");

        public void SendLeft() => Told.Add("end");
    }
}
