using System.Buffers;
using Grpc.Core;

namespace KvCluster.Benchmarks.Grpc;

/// <summary>What is called: messages are bytes and nothing is parsed, so that what is measured is the stack.</summary>
internal static class EchoMethods
{
    public const string UnaryPath = "/benchmark.Echo/Unary";
    public const string DuplexPath = "/benchmark.Echo/Duplex";
    public const int PayloadBytes = 64;

    private static readonly Marshaller<byte[]> Bytes = new(
        static (message, context) =>
        {
            context.SetPayloadLength(message.Length);
            context.GetBufferWriter().Write(message);
            context.Complete();
        },
        static context => context.PayloadAsNewBuffer());

    public static readonly Method<byte[], byte[]> Unary = new(MethodType.Unary, "benchmark.Echo", "Unary", Bytes, Bytes);
    public static readonly Method<byte[], byte[]> Duplex = new(MethodType.DuplexStreaming, "benchmark.Echo", "Duplex", Bytes, Bytes);
}
