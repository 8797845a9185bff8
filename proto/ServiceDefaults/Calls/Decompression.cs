// Requests that a caller compressed. A server accepts them and never compresses itself, because inside a cluster the network is cheaper than the processor. A
// message may be a thousand times as large as its compressed bytes, so its memory is limited while it grows. Allocates; runs on the thread that reads the
// stream.
using System.Buffers;
using System.IO.Compression;
using Grpc.Core;

namespace KvCluster.ServiceDefaults.Calls;

/// <summary>The message encodings that a server understands.</summary>
internal static class Decompression
{
    /// <summary>Value of <c>grpc-accept-encoding</c>.</summary>
    public const string Accepted = "identity,gzip,deflate";

    public static bool IsKnown(string encoding) => encoding is "identity" or "gzip" or "deflate";

    /// <summary>Decompresses a message whose frame has the compressed flag.</summary>
    /// <param name="payload">The received bytes.</param>
    /// <param name="encoding">As named by the peer; null if it named none.</param>
    /// <param name="messageBytesMax">The maximum size of the decompressed message.</param>
    /// <param name="hold">Called with the size of the message before it takes the memory; throws if there is no room. Null means no limit.</param>
    /// <exception cref="RpcException">
    /// INTERNAL: the encoding is missing or unknown, or the data does not match it. RESOURCE_EXHAUSTED: the decompressed message exceeds the limit; it is not
    /// decompressed further.
    /// </exception>
    public static DecompressedMessage Decompress(ReadOnlySequence<byte> payload, string? encoding, int messageBytesMax, Action<long>? hold)
    {
        using var source = new PayloadStream(payload);
        using Stream decompressed = encoding switch
        {
            "gzip" => new GZipStream(source, CompressionMode.Decompress),
            "deflate" => new ZLibStream(source, CompressionMode.Decompress),
            _ => throw new RpcException(new Status(
                StatusCode.Internal, $"A message is compressed, but the encoding of the call is '{encoding ?? "identity"}'.")),
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

/// <summary>The cause in a status RESOURCE_EXHAUSTED: a received message is larger than the limit, as received or decompressed.</summary>
internal sealed class MessageTooLargeException(string text) : Exception(text);
