using Google.Protobuf;

namespace KvCluster.Node.Coordination.Embedded;

/// <summary>Byte order, which is the order of keys.</summary>
internal sealed class ByteStringOrder : IComparer<ByteString>
{
    public static readonly ByteStringOrder Instance = new();

    private ByteStringOrder()
    {
    }

    public int Compare(ByteString? x, ByteString? y) => x!.Span.SequenceCompareTo(y!.Span);
}
