using System.Runtime.InteropServices;

namespace KvCluster.Storage.Files;

/// <summary>Native memory aligned to 4 KiB, as direct I/O requires. Owned and used by one executor at a time.</summary>
internal sealed unsafe class AlignedBuffer : IDisposable
{
    /// <summary>Alignment of memory, offset and length for direct I/O, in bytes.</summary>
    public const int Alignment = 4096;

    private byte* _memory;

    /// <summary>Rounds a length up to a multiple of it.</summary>
    public static int RoundUp(int bytes) => (bytes + Alignment - 1) & ~(Alignment - 1);

    /// <summary>Allocates zeroed memory.</summary>
    public AlignedBuffer(int length)
    {
        Length = length;
        _memory = (byte*)NativeMemory.AlignedAlloc((nuint)length, Alignment);
        new Span<byte>(_memory, length).Clear();
    }

    ~AlignedBuffer() => Free();

    /// <summary>Size in bytes.</summary>
    public int Length { get; }

    /// <summary>The memory. Must not be used after <see cref="Dispose"/>.</summary>
    public Span<byte> Span
    {
        get
        {
            ObjectDisposedException.ThrowIf(_memory == null, this);
            return new Span<byte>(_memory, Length);
        }
    }

    /// <inheritdoc/>
    public void Dispose()
    {
        Free();
        GC.SuppressFinalize(this);
    }

    private void Free()
    {
        NativeMemory.AlignedFree(_memory);
        _memory = null;
    }
}
