using System.Buffers;
using Grpc.Core;

namespace KvCluster.Benchmarks.Grpc;

/// <summary>
/// The methods called. Messages are bytes and nothing is parsed, so only the call is measured. As in the bare client, only the length of answers is
/// checked.
/// </summary>
internal static class EchoMethods
{
    public const string UnaryPath = "/benchmark.Echo/Unary";
    public const string DuplexPath = "/benchmark.Echo/Duplex";
    public const int PayloadBytes = 64;

    /// <summary>The payload that all callers send.</summary>
    public static readonly byte[] Payload = new byte[PayloadBytes];

    private static readonly Marshaller<byte[]> Requests = new(Write, static context => context.PayloadAsNewBuffer());

    private static readonly Marshaller<byte[]> Answers = new(Write, static context => context.PayloadLength == PayloadBytes
        ? Payload
        : throw new InvalidDataException($"An echo of {context.PayloadLength} bytes."));

    public static readonly Method<byte[], byte[]> Unary = new(MethodType.Unary, "benchmark.Echo", "Unary", Requests, Answers);
    public static readonly Method<byte[], byte[]> Duplex = new(MethodType.DuplexStreaming, "benchmark.Echo", "Duplex", Requests, Answers);

    private static void Write(byte[] message, SerializationContext context)
    {
        context.SetPayloadLength(message.Length);
        context.GetBufferWriter().Write(message);
        context.Complete();
    }
}
