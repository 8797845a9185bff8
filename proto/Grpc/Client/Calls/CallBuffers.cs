using System.Buffers;

namespace Grpc.Net.Client.Calls;

/// <summary>
/// The arrays of calls. Small ones are allocated once and kept by their owner, which is reused itself, because with some hundred open calls the shared pool
/// would not have enough of them. Large ones come from the shared pool, so that one large message does not occupy memory for good.
/// </summary>
internal static class CallBuffers
{
    private const int KeptBytesMax = 32 * 1024;

    /// <summary>Replaces an array with one of at least this size, with a part of its content at the start.</summary>
    public static void Grow(ref byte[] bytes, int neededBytes, int start, int count)
    {
        var larger = neededBytes <= KeptBytesMax ? new byte[neededBytes] : ArrayPool<byte>.Shared.Rent(neededBytes);
        bytes.AsSpan(start, count).CopyTo(larger);
        Release(ref bytes);
        bytes = larger;
    }

    /// <summary>Returns a large array to the pool; nobody may read or write it any more.</summary>
    public static void Release(ref byte[] bytes)
    {
        if (bytes.Length <= KeptBytesMax)
            return;
        ArrayPool<byte>.Shared.Return(bytes);
        bytes = [];
    }
}
