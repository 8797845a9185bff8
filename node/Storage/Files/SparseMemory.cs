using System.Runtime.InteropServices;

namespace KvCluster.Storage.Files;

/// <summary>
/// Zeroed native memory for large tables of which little is used. On Linux the system gives only the pages of it that are written to. The C library's zeroed
/// memory is like that only as long as it comes from the system: what was freed before is cleared, and is in memory as a whole then. Nor are huge pages used,
/// each of which would be there as a whole. Any thread.
/// </summary>
internal static unsafe class SparseMemory
{
    /// <summary>Allocates memory, to be freed with the same length.</summary>
    /// <exception cref="InsufficientMemoryException">The system gives no more addresses.</exception>
    public static void* Allocate(nuint bytes)
    {
        if (!OperatingSystem.IsLinux())
            return NativeMemory.AllocZeroed(bytes);
        var memory = LibC.Map(null, bytes, LibC.ProtectRead | LibC.ProtectWrite, LibC.MapPrivate | LibC.MapAnonymous, -1, 0);
        if (memory == (byte*)-1)
            throw new InsufficientMemoryException($"The system did not map {bytes} bytes: error {Marshal.GetLastPInvokeError()}.");
        // Only a hint. A kernel without huge pages refuses it.
        _ = LibC.Advise(memory, bytes, LibC.AdviseNoHugePage);
        return memory;
    }

    /// <summary>Frees memory; null is ignored.</summary>
    public static void Free(void* memory, nuint bytes)
    {
        if (!OperatingSystem.IsLinux())
            NativeMemory.Free(memory);
        else if (memory != null)
            _ = LibC.Unmap((byte*)memory, bytes);
    }
}
