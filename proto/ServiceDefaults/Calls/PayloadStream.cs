using System.Buffers;

namespace KvCluster.ServiceDefaults.Calls;

/// <summary>Bytes in the buffers of a connection as a stream, without copying them first.</summary>
internal sealed class PayloadStream(ReadOnlySequence<byte> left) : Stream
{
    private ReadOnlySequence<byte> _left = left;

    public override bool CanRead => true;

    public override bool CanSeek => false;

    public override bool CanWrite => false;

    public override long Length => throw new NotSupportedException();

    public override long Position
    {
        get => throw new NotSupportedException();
        set => throw new NotSupportedException();
    }

    public override int Read(Span<byte> buffer)
    {
        var count = (int)Math.Min(buffer.Length, _left.Length);
        _left.Slice(0, count).CopyTo(buffer);
        _left = _left.Slice(count);
        return count;
    }

    public override int Read(byte[] buffer, int offset, int count) => Read(buffer.AsSpan(offset, count));

    public override void Flush()
    {
    }

    public override long Seek(long offset, SeekOrigin origin) => throw new NotSupportedException();

    public override void SetLength(long value) => throw new NotSupportedException();

    public override void Write(byte[] buffer, int offset, int count) => throw new NotSupportedException();
}
