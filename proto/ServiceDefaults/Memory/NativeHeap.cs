// The C library's heap: memory of the runtime itself, above all of its compiler, of TLS, and of the stores. Called by MemoryReturn.cs.
using System.Runtime.InteropServices;

namespace KvCluster.ServiceDefaults.Memory;

/// <summary>Returns what the heap keeps of freed memory.</summary>
internal static class NativeHeap
{
    private static volatile bool _isOther;

    /// <summary>
    /// Returns all free pages to the system. The C library itself returns only those at the end of each of its arenas, of which there are several for each
    /// processor: after a start they keep what the compiler has used on the threads that compiled. Takes some milliseconds, in which other threads may wait to
    /// allocate. Any thread.
    /// </summary>
    /// <returns>False where the C library has no such call.</returns>
    public static bool Trim()
    {
        if (_isOther || !OperatingSystem.IsLinux())
            return false;
        try
        {
            _ = MallocTrim(0);
            return true;
        }
        catch (EntryPointNotFoundException)
        {
            // The C library is not glibc, so the call is not tried again.
            _isOther = true;
            return false;
        }
    }

    [DllImport("libc", EntryPoint = "malloc_trim")]
    private static extern int MallocTrim(nuint keptBytes);
}
