using Google.Protobuf;
using KvCluster.Internal.V1;

namespace KvCluster.Node.Shards.Context;

/// <summary>Approximate memory that a frame holds. Queues of frames are bounded by it.</summary>
internal static class FrameBytes
{
    /// <summary>Memory of a frame besides its bodies.</summary>
    public const int OverheadBytes = 128;

    public static long Of(Frame frame) => OverheadBytes + frame.PayloadCase switch
    {
        Frame.PayloadOneofCase.Append => Of(frame.Append.Bodies),
        Frame.PayloadOneofCase.Tail => Of(frame.Tail.Bodies),
        Frame.PayloadOneofCase.SnapshotChunk => frame.SnapshotChunk.Data.Length,
        _ => 0,
    };

    private static long Of(IEnumerable<ByteString> bodies)
    {
        var sum = 0L;
        foreach (var body in bodies)
            sum += body.Length;
        return sum;
    }
}
