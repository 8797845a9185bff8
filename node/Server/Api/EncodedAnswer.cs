namespace KvCluster.Node.Api;

/// <summary>A response that was encoded piece by piece before.</summary>
internal readonly ref struct EncodedAnswer(ReadOnlySpan<byte> message) : IAnswer
{
    private readonly ReadOnlySpan<byte> _message = message;

    public int Size => _message.Length;

    public void WriteTo(Span<byte> destination) => _message.CopyTo(destination);
}
