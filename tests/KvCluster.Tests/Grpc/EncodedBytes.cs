using Grpc.Core;
using Grpc.Shared;

namespace KvCluster.Tests.Grpc;

/// <summary>A message that is encoded already, and counts how often it was returned.</summary>
internal sealed class EncodedBytes : IEncodedMessage
{
    public static readonly Marshaller<EncodedBytes> Marshaller = Marshallers.Create<EncodedBytes>(
        static (_, _) => throw new InvalidOperationException("It was serialized as a whole."), static _ => throw new NotSupportedException());

    public EncodedBytes(int count)
    {
        var bytes = new byte[count];
        new Random(1).NextBytes(bytes);
        Memory = bytes;
    }

    public ReadOnlyMemory<byte> Memory { get; }

    public int Returns { get; private set; }

    public void Return() => Returns++;
}
