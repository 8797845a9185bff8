using System.Buffers;
using Grpc.Core;

namespace KvCluster.Benchmarks.Grpc;

/// <summary>What is called: messages are bytes and nothing is parsed, so that what is measured is the stack. Answers are only measured, as by the bare client.</summary>
internal static class EchoMethods
{
    public const string UnaryPath = "/benchmark.Echo/Unary";
    public const string DuplexPath = "/benchmark.Echo/Duplex";
    public const int PayloadBytes = 64;

    /// <summary>What all callers send.</summary>
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
