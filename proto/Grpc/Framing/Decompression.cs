// Messages that a peer compressed. This stack takes them and never sends them: inside a cluster the network is cheaper than the
// processor. Allocates; runs on the thread that reads the stream.
using System.Buffers;
using System.IO.Compression;
using Grpc.Core;

namespace Grpc.Shared;

/// <summary>The message encodings that this stack understands.</summary>
internal static class Decompression
{
    /// <summary>Value of <c>grpc-accept-encoding</c>.</summary>
    public const string Accepted = "identity,gzip,deflate";

    private const int ChunkBytes = 16 * 1024;

    public static bool IsKnown(string encoding) => encoding is "identity" or "gzip" or "deflate";

    /// <summary>The message behind a frame whose compressed flag is set.</summary>
    /// <exception cref="RpcException">
    /// INTERNAL: no or an unknown encoding, or not the data that it names. RESOURCE_EXHAUSTED: larger than the limit when
    /// decompressed; it is not decompressed further than that.
    /// </exception>
    public static ReadOnlySequence<byte> Decompress(ReadOnlySequence<byte> payload, string? encoding, int messageBytesMax)
    {
        using var source = new MemoryStream(payload.ToArray(), writable: false);
        using Stream decompressed = encoding switch
        {
            "gzip" => new GZipStream(source, CompressionMode.Decompress),
            "deflate" => new ZLibStream(source, CompressionMode.Decompress),
            _ => throw new RpcException(new Status(StatusCode.Internal, $"A compressed message came with the encoding '{encoding ?? "identity"}'.")),
        };
        var message = new ArrayBufferWriter<byte>(ChunkBytes);
        try
        {
            while (decompressed.Read(message.GetSpan(ChunkBytes)) is > 0 and var count)
            {
                message.Advance(count);
                if (message.WrittenCount > messageBytesMax)
                    throw new RpcException(new Status(StatusCode.ResourceExhausted, $"Decompressed message exceeds the maximum of {messageBytesMax} bytes."));
            }
        }
        catch (InvalidDataException failure)
        {
            throw new RpcException(new Status(StatusCode.Internal, $"A message is not {encoding} data.", failure));
        }
        return new ReadOnlySequence<byte>(message.WrittenMemory);
    }
}
