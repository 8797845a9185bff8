using System.Buffers;
using KvCluster;

namespace Grpc.Net.Client.Calls;

/// <summary>
/// The arrays of calls. Small ones are allocated once and kept by their owner, which is reused itself, because with some hundred open calls the shared pool
/// would not have enough of them. Larger ones come from the shared pool. It keeps what it gets back for minutes, and has lengths of powers of two only, so arrays of
/// large messages come from <see cref="LargeArrays"/>.
/// </summary>
internal static class CallBuffers
{
    /// <summary>A message of more bytes is large: its array is returned as soon as the message is read.</summary>
    public const int PooledBytesMax = 256 * 1024;

    private const int KeptBytesMax = 32 * 1024;

    /// <summary>Replaces an array with one of at least this size, with a part of its content at the start.</summary>
    public static void Grow(ref byte[] bytes, int neededBytes, int start, int count)
    {
        var larger = neededBytes switch
        {
            <= KeptBytesMax => new byte[neededBytes],
            <= PooledBytesMax => ArrayPool<byte>.Shared.Rent(neededBytes),
            _ => LargeArrays.Rent(neededBytes),
        };
        bytes.AsSpan(start, count).CopyTo(larger);
        Release(ref bytes);
        bytes = larger;
    }

    /// <summary>Returns an array that is not small; nobody may read or write it any more.</summary>
    public static void Release(ref byte[] bytes)
    {
        if (bytes.Length <= KeptBytesMax)
            return;
        if (bytes.Length <= PooledBytesMax)
            ArrayPool<byte>.Shared.Return(bytes);
        else
            LargeArrays.Return(bytes);
        bytes = [];
    }
}
