// The bytes of a message that arrived compressed, in pooled pieces. It grows without being copied, and only as far as its owner allows. Used by the thread
// that reads the stream.
using System.Buffers;
using Grpc.Core;

namespace KvCluster.ServiceDefaults.Calls;

/// <summary>A message while it is decompressed and read. If it is not disposed, its pieces are left to the garbage collector.</summary>
internal sealed class DecompressedMessage : IDisposable
{
    /// <summary>Most compressed messages are small. The pieces of a large one stay below the runtime's limit for large objects.</summary>
    private const int FirstPieceBytes = 4 << 10;
    private const int PieceBytesMax = 64 << 10;

    private Piece? _first;
    private Piece? _last;

    /// <summary>The bytes; valid until it is disposed.</summary>
    public ReadOnlySequence<byte> Bytes => _first is null ? ReadOnlySequence<byte>.Empty : new ReadOnlySequence<byte>(_first, 0, _last!, _last!.Used);

    /// <summary>Reads a stream to its end.</summary>
    /// <param name="source">The decompressing stream.</param>
    /// <param name="bytesMax">The maximum number of bytes.</param>
    /// <param name="hold">Called with the size of the message before it takes the memory; throws if there is no room. Null means no limit.</param>
    /// <exception cref="RpcException">RESOURCE_EXHAUSTED: there are more bytes.</exception>
    public void Fill(Stream source, int bytesMax, Action<long>? hold)
    {
        long filled = 0;
        for (var pieceBytes = FirstPieceBytes; ; pieceBytes = Math.Min(pieceBytes * 2, PieceBytesMax))
        {
            // One byte more than allowed shows that the message is too large.
            var wanted = (int)Math.Min(pieceBytes, bytesMax + 1L - filled);
            hold?.Invoke(filled + wanted);
            var piece = Add(ArrayPool<byte>.Shared.Rent(wanted));
            var count = source.ReadAtLeast(piece.Room[..wanted], wanted, throwOnEndOfStream: false);
            piece.Fill(count);
            filled += count;
            if (filled > bytesMax)
            {
                var text = $"Decompressed message exceeds the maximum of {bytesMax} bytes.";
                throw new RpcException(new Status(StatusCode.ResourceExhausted, text, new MessageTooLargeException(text)));
            }
            if (count < wanted)
                return;
        }
    }

    public void Dispose()
    {
        for (var piece = _first; piece is not null; piece = (Piece?)piece.Next)
            piece.Return();
        _first = _last = null;
    }

    private Piece Add(byte[] bytes)
    {
        var piece = new Piece(bytes, _last);
        _first ??= piece;
        return _last = piece;
    }

    private sealed class Piece : ReadOnlySequenceSegment<byte>
    {
        private readonly byte[] _bytes;

        public Piece(byte[] bytes, Piece? before)
        {
            _bytes = bytes;
            if (before is null)
                return;
            RunningIndex = before.RunningIndex + before.Used;
            before.Next = this;
        }

        public int Used => Memory.Length;

        public Span<byte> Room => _bytes;

        public void Fill(int count) => Memory = _bytes.AsMemory(0, count);

        public void Return() => ArrayPool<byte>.Shared.Return(_bytes);
    }
}
