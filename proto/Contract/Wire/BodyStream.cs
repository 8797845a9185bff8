namespace KvCluster.Wire;

/// <summary>A body on its way to its reader, who reads it asynchronously. Used by one reader at a time.</summary>
/// <param name="inner">See <see cref="Inner"/>; it is disposed with this.</param>
internal abstract class BodyStream(Stream inner) : ForwardStream
{
    /// <summary>The body as it is received.</summary>
    protected Stream Inner { get; } = inner;

    public abstract override ValueTask<int> ReadAsync(Memory<byte> buffer, CancellationToken cancellationToken = default);

    public override Task<int> ReadAsync(byte[] buffer, int offset, int count, CancellationToken cancellationToken) =>
        ReadAsync(buffer.AsMemory(offset, count), cancellationToken).AsTask();

    public override int Read(Span<byte> buffer) => throw new NotSupportedException();

    protected override void Dispose(bool disposing)
    {
        if (disposing)
            Inner.Dispose();
        base.Dispose(disposing);
    }
}
