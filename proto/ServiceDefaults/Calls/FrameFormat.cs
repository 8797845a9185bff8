// The five bytes before each message on the wire: a compressed flag and the length, big-endian. Used on the thread that reads the request. An RpcException
// thrown here is the status of the call: the caller violated the format or a limit.
using System.Buffers;
using System.Buffers.Binary;
using Grpc.Core;

namespace KvCluster.ServiceDefaults.Calls;

/// <summary>Length-prefixed messages of the gRPC wire format.</summary>
internal static class FrameFormat
{
    /// <summary>Length of the header before each message.</summary>
    public const int HeaderBytes = 5;

    public static void WriteHeader(Span<byte> destination, int payloadBytes)
    {
        destination[0] = 0;
        BinaryPrimitives.WriteUInt32BigEndian(destination[1..], (uint)payloadBytes);
    }

    /// <summary>Takes one whole frame from the front of a buffer; returns false if it has not completely arrived.</summary>
    /// <exception cref="RpcException">INTERNAL: not a frame. RESOURCE_EXHAUSTED: larger than the limit.</exception>
    public static bool TryRead(ref ReadOnlySequence<byte> buffer, int messageBytesMax, out bool isCompressed, out ReadOnlySequence<byte> payload)
    {
        isCompressed = false;
        payload = default;
        if (buffer.Length < HeaderBytes)
            return false;
        int payloadBytes;
        if (buffer.FirstSpan.Length >= HeaderBytes)
        {
            payloadBytes = ReadHeader(buffer.FirstSpan, messageBytesMax, out isCompressed);
        }
        else
        {
            Span<byte> header = stackalloc byte[HeaderBytes];
            buffer.Slice(0, HeaderBytes).CopyTo(header);
            payloadBytes = ReadHeader(header, messageBytesMax, out isCompressed);
        }
        if (buffer.Length - HeaderBytes < payloadBytes)
            return false;
        payload = buffer.Slice(HeaderBytes, payloadBytes);
        buffer = buffer.Slice(payload.End);
        return true;
    }

    // Returns the length of the message that follows.
    private static int ReadHeader(ReadOnlySpan<byte> header, int messageBytesMax, out bool isCompressed)
    {
        if (header[0] > 1)
            throw new RpcException(new Status(StatusCode.Internal, $"Unexpected compressed flag {header[0]} in the message header."));
        isCompressed = header[0] == 1;
        var payloadBytes = BinaryPrimitives.ReadUInt32BigEndian(header[1..]);
        if (payloadBytes > (uint)messageBytesMax)
        {
            var text = $"Received message of {payloadBytes} bytes exceeds the maximum of {messageBytesMax}.";
            throw new RpcException(new Status(StatusCode.ResourceExhausted, text, new MessageTooLargeException(text)));
        }
        return (int)payloadBytes;
    }
}
