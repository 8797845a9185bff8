// Messages that a peer compressed. This stack takes them and never sends them: inside a cluster the network is cheaper than the
// processor. A thousandth of a message's bytes may be all of it that comes over the wire, so what it takes is bounded as it grows. Allocates; runs on the
// thread that reads the stream.
using System.Buffers;
using System.IO.Compression;
using Grpc.Core;

namespace Grpc.Shared;

/// <summary>The message encodings that this stack understands.</summary>
internal static class Decompression
{
    /// <summary>Value of <c>grpc-accept-encoding</c>.</summary>
    public const string Accepted = "identity,gzip,deflate";

    public static bool IsKnown(string encoding) => encoding is "identity" or "gzip" or "deflate";

    /// <summary>The message behind a frame whose compressed flag is set.</summary>
    /// <param name="payload">What came.</param>
    /// <param name="encoding">As the peer named it; null: it did not.</param>
    /// <param name="messageBytesMax">Largest message when decompressed.</param>
    /// <param name="hold">Is told how many bytes the message takes before it takes them, and throws if there is no room; null: there is.</param>
    /// <exception cref="RpcException">
    /// INTERNAL: no or an unknown encoding, or not the data that it names. RESOURCE_EXHAUSTED: larger than the limit when
    /// decompressed; it is not decompressed further than that.
    /// </exception>
    public static DecompressedMessage Decompress(ReadOnlySequence<byte> payload, string? encoding, int messageBytesMax, Action<long>? hold)
    {
        using var source = new PayloadStream(payload);
        using Stream decompressed = encoding switch
        {
            "gzip" => new GZipStream(source, CompressionMode.Decompress),
            "deflate" => new ZLibStream(source, CompressionMode.Decompress),
            _ => throw new RpcException(new Status(StatusCode.Internal, $"A compressed message came with the encoding '{encoding ?? "identity"}'.")),
        };
        var message = new DecompressedMessage();
        try
        {
            message.Fill(decompressed, messageBytesMax, hold);
            return message;
        }
        catch (InvalidDataException failure)
        {
            message.Dispose();
            throw new RpcException(new Status(StatusCode.Internal, $"A message is not {encoding} data.", failure));
        }
        catch
        {
            message.Dispose();
            throw;
        }
    }
}
