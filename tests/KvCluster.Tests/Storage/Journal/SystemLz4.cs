using System.Runtime.InteropServices;

namespace KvCluster.Tests.Storage.Journal;

/// <summary>The system's liblz4, another implementation of the format. The program does not use it.</summary>
internal static unsafe class SystemLz4
{
    private const string Library = "liblz4.so.1";

    private static readonly nint Loaded = NativeLibrary.TryLoad(Library, out var loaded) ? loaded : 0;

    /// <summary>Compresses a block.</summary>
    public static byte[] Compress(byte[] source)
    {
        var compress = (delegate* unmanaged<byte*, byte*, int, int, int>)NativeLibrary.GetExport(Loaded, "LZ4_compress_default");
        // As much as a block can be longer than what it gives.
        var block = new byte[source.Length + (source.Length / 255) + 16];
        fixed (byte* from = source, to = block)
            return block[..compress(from, to, source.Length, block.Length)];
    }

    /// <summary>Decompresses a block of a known length. Null if it is not one.</summary>
    public static byte[]? TryDecompress(byte[] block, int length)
    {
        var decompress = (delegate* unmanaged<byte*, byte*, int, int, int>)NativeLibrary.GetExport(Loaded, "LZ4_decompress_safe");
        var result = new byte[length];
        fixed (byte* from = block, to = result)
            return decompress(from, to, block.Length, length) == length ? result : null;
    }

    /// <summary>A test against the library. Without it the test is skipped and names it.</summary>
    [AttributeUsage(AttributeTargets.Method)]
    internal sealed class SystemLz4FactAttribute : FactAttribute
    {
        public SystemLz4FactAttribute() => Skip = Loaded != 0 ? null : $"{Library} is not on this machine.";
    }
}
