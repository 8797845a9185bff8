namespace KvCluster.Node.Api;

/// <summary>A response that can be encoded in place. Implemented by one struct for each response message.</summary>
internal interface IAnswer
{
    /// <summary>Bytes of the encoded message.</summary>
    int Size { get; }

    /// <summary>Encodes it into exactly that many bytes.</summary>
    void WriteTo(Span<byte> destination);
}
