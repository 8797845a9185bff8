// What the replicas of one writer thread send. A small record and an acknowledgement cost little beside the message that carries them: with many busy shards
// each of them was a message, with a wake-up of its sender here and of its receiver there. So those of one pass of the thread share a message for each node. A
// pass is what was queued on the thread when the first of them was left, so nothing waits for time, and nothing waits where nothing is queued.
using KvCluster.Internal.V1;
using KvCluster.Node.Shards.Context;
using KvCluster.Storage.Threads;

namespace KvCluster.Node.Transport;

/// <summary>Has the frames of a writer thread's pass share messages. Any thread; a pass ends on the writer thread.</summary>
/// <param name="peers">Carries the frames.</param>
/// <param name="writer">The writer thread.</param>
internal sealed class PassTransport(IPeerTransport peers, ISerialExecutor writer) : IPeerTransport, IWorkItem
{
    /// <summary>
    /// Bytes of a record that waits for the end of the pass. A larger one took longer to make than a message takes to send: it is the batch of a busy shard,
    /// which may make the next one in the same turn.
    /// </summary>
    internal const int SmallBytesMax = 4 << 10;

    private int _isPosted;

    /// <inheritdoc/>
    public void Send(NodeId node, Frame frame)
    {
        if (!writer.HasWork || !MayWait(frame))
        {
            peers.Send(node, frame);
            return;
        }
        peers.Leave(node, frame);
        if (Interlocked.Exchange(ref _isPosted, 1) == 0)
            writer.Post(this);
    }

    /// <inheritdoc/>
    public void SendLeft() => peers.SendLeft();

    /// <summary>The pass has ended. Whoever leaves a frame after the exchange posts the next end.</summary>
    public void Execute()
    {
        Interlocked.Exchange(ref _isPosted, 0);
        peers.SendLeft();
    }

    // All others are rare, or somebody waits for them who does not wait for a disk: votes, reads, heartbeats.
    private static bool MayWait(Frame frame) => frame.PayloadCase switch
    {
        Frame.PayloadOneofCase.Ack => true,
        Frame.PayloadOneofCase.Append => frame.Append.Bodies is [{ Length: <= SmallBytesMax }],
        _ => false,
    };
}
