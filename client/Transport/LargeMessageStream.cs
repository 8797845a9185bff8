// The body of a gRPC response on its way from HttpClient to gRPC's client package: five bytes before each message, a compressed flag and the
// length. A message goes through as it comes, unless it is large and its reader has a place for it (LargeMessages). What violates the format is
// left to the package to refuse.
using System.Buffers.Binary;
using System.Runtime.CompilerServices;
using KvCluster.Wire;

namespace KvCluster.Client.Transport;

/// <summary>Receives large messages, up to a limit, for their readers. Used by one reader at a time.</summary>
internal sealed class LargeMessageStream(Stream inner, int bytesMax) : BodyStream(inner)
{
    private const int HeaderBytes = 5;

    // The header that was read last, how many bytes of it were received, and how many of those the reader has.
    private readonly byte[] _header = new byte[HeaderBytes];
    private int _headerReceived;
    private int _headerRead;

    // Bytes of the message behind that header which the reader does not have yet.
    private long _left;

    [AsyncMethodBuilder(typeof(PoolingAsyncValueTaskMethodBuilder<>))]
    public override async ValueTask<int> ReadAsync(Memory<byte> buffer, CancellationToken cancellationToken = default)
    {
        if (_headerRead == _headerReceived && _left == 0)
            await ReceiveHeaderAsync(cancellationToken).ConfigureAwait(false);
        if (_headerRead < _headerReceived)
            return ReadHeader(buffer.Span);
        // The end of the body.
        if (_left == 0)
            return 0;
        var read = await Inner.ReadAsync(buffer[..(int)Math.Min(buffer.Length, _left)], cancellationToken).ConfigureAwait(false);
        _left -= read;
        return read;
    }

    private int ReadHeader(Span<byte> destination)
    {
        var count = Math.Min(destination.Length, _headerReceived - _headerRead);
        _header.AsSpan(_headerRead, count).CopyTo(destination);
        _headerRead += count;
        return count;
    }

    [AsyncMethodBuilder(typeof(PoolingAsyncValueTaskMethodBuilder))]
    private async ValueTask ReceiveHeaderAsync(CancellationToken cancellationToken)
    {
        _headerRead = _headerReceived = 0;
        var received = await Inner.ReadAtLeastAsync(_header, HeaderBytes, throwOnEndOfStream: false, cancellationToken).ConfigureAwait(false);
        if (received == HeaderBytes)
        {
            var length = BinaryPrimitives.ReadUInt32BigEndian(_header.AsSpan(1));
            _left = length;
            var isForReader = _header[0] == 0 && length > MessageBytes.PooledBytesMax && length <= Math.Min(bytesMax, Array.MaxLength);
            if (isForReader && LargeMessages.PlaceOfReader is { } place)
                await ReceiveAsync((int)length, place, cancellationToken).ConfigureAwait(false);
        }
        _headerReceived = received;
    }

    private async ValueTask ReceiveAsync(int length, LargeMessages.Place place, CancellationToken cancellationToken)
    {
        var message = MessageBytes.Rent();
        int received;
        try
        {
            received = await Inner.ReadAtLeastAsync(message.AppendMemory(length), length, throwOnEndOfStream: false, cancellationToken).ConfigureAwait(false);
        }
        catch
        {
            message.Return();
            throw;
        }
        _left -= received;
        if (_left > 0)
        {
            // The body ended too soon. The package gets the header as it came, and finds that nothing follows.
            message.Return();
            return;
        }
        place.Put(message);
        _header.AsSpan(1).Clear();
    }
}
