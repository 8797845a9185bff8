using System.Runtime.InteropServices;

namespace KvCluster.Tests.Storage.Journal;

/// <summary>Memory between two pages that nobody may touch: whoever reads or writes a byte outside of it ends the process.</summary>
internal sealed unsafe partial class GuardedMemory : IDisposable
{
    private const int None = 0;
    private const int ReadWrite = 3;
    private const int PrivateAnonymous = 0x22;

    private readonly nuint _bytes;
    private readonly byte* _map;

    /// <param name="bytes">A multiple of the system's page size.</param>
    public GuardedMemory(int bytes)
    {
        _bytes = (nuint)bytes;
        _map = Map(null, MapBytes, None, PrivateAnonymous, -1, 0);
        if (_map == (byte*)-1 || Protect(Start, _bytes, ReadWrite) != 0)
            throw new OutOfMemoryException($"Guarded memory of {bytes} bytes cannot be had: errno {Marshal.GetLastPInvokeError()}.");
    }

    /// <summary>Bytes that end where the memory does, or begin where it does.</summary>
    public Span<byte> Of(int length, bool atEnd) => new(atEnd ? Start + _bytes - length : Start, length);

    public void Dispose() => _ = Unmap(_map, MapBytes);

    private static nuint GuardBytes => (nuint)Environment.SystemPageSize;

    private nuint MapBytes => _bytes + (2 * GuardBytes);

    private byte* Start => _map + GuardBytes;

    [LibraryImport("libc", EntryPoint = "mmap", SetLastError = true)]
    private static partial byte* Map(byte* address, nuint length, int protection, int flags, int file, nint offset);

    [LibraryImport("libc", EntryPoint = "mprotect", SetLastError = true)]
    private static partial int Protect(byte* address, nuint length, int protection);

    [LibraryImport("libc", EntryPoint = "munmap", SetLastError = true)]
    private static partial int Unmap(byte* address, nuint length);
}
