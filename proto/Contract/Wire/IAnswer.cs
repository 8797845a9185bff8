namespace KvCluster.Wire;

/// <summary>A response that can be encoded in place. Implemented by one struct for each response message.</summary>
internal interface IAnswer
{
    /// <summary>Bytes of the encoded message.</summary>
    int Size { get; }

    /// <summary>Encodes it into exactly that many bytes.</summary>
    void WriteTo(Span<byte> destination);
}

/// <summary>A response that was already encoded, piece by piece or by somebody else.</summary>
internal readonly ref struct EncodedAnswer(ReadOnlySpan<byte> message) : IAnswer
{
    private readonly ReadOnlySpan<byte> _message = message;

    public int Size => _message.Length;

    public void WriteTo(Span<byte> destination) => _message.CopyTo(destination);
}
