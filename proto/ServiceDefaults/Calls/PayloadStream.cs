using System.Buffers;
using KvCluster.Wire;

namespace KvCluster.ServiceDefaults.Calls;

/// <summary>Bytes in the buffers of a connection as a stream, without copying them first.</summary>
internal sealed class PayloadStream(ReadOnlySequence<byte> left) : ForwardStream
{
    private ReadOnlySequence<byte> _left = left;

    public override int Read(Span<byte> buffer)
    {
        var count = (int)Math.Min(buffer.Length, _left.Length);
        _left.Slice(0, count).CopyTo(buffer);
        _left = _left.Slice(count);
        return count;
    }
}
