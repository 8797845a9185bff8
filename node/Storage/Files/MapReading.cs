using System.Runtime.InteropServices;

namespace KvCluster.Storage.Files;

/// <summary>
/// Reads mapped bytes before they are accessed, so that a bad sector is an error number here and not a SIGBUS later, which nothing in this process can
/// catch. Stateless; any thread. While the disk reads, the thread does not block the garbage collector, as it would in a page fault.
/// </summary>
internal static unsafe class MapReading
{
    /// <summary>The kernel may abort a populate for lack of memory or on a signal. After this many attempts the read fails.</summary>
    private const int AttemptsMax = 4;

    /// <summary>Bytes per read where the kernel cannot populate a mapping. Covers most pages with one read, and fits on the stack.</summary>
    private const int BlockBytes = 16 << 10;

    /// <summary>Makes the kernel read pages of a mapping from its file.</summary>
    /// <exception cref="StorageIoException">The disk cannot read them.</exception>
    public static void Read(int file, string path, byte* map, long offset, long bytes)
    {
        var start = offset & ~(Environment.SystemPageSize - 1L);
        var length = offset + bytes - start;
        // In a mapping that is read at random, populating alone reads each 4 KiB by itself, one after the other.
        if (length > Environment.SystemPageSize)
            _ = LibC.Advise(map + start, (nuint)length, LibC.AdviseWillNeed);
        for (var attempt = 0; attempt < AttemptsMax; attempt++)
        {
            if (LibC.Advise(map + start, (nuint)length, LibC.AdvisePopulateRead) == 0)
                return;
            var error = Marshal.GetLastPInvokeError();
            if (error is LibC.ErrorInterrupted or LibC.ErrorAgain)
                continue;
            // Throws the disk's error if there is one. Otherwise the pages are in the cache now.
            ReadInBlocks(file, path, start, length);
            if (error is not (LibC.ErrorFault or LibC.ErrorPoisoned))
                return;
        }
        throw LinuxFileSystem.Failure("read", path, LibC.ErrorFault);
    }

    /// <summary>Makes the kernel begin to read pages of a mapping, unless the first one is in memory. False in that case.</summary>
    public static bool TryBegin(byte* map, long offset, long bytes)
    {
        var start = offset & ~(Environment.SystemPageSize - 1L);
        byte isInMemory = 0;
        if (LibC.InMemory(map + start, (nuint)Environment.SystemPageSize, &isInMemory) == 0 && (isInMemory & 1) != 0)
            return false;
        // What cannot be read now is an error when it is read.
        _ = LibC.Advise(map + start, (nuint)(offset + bytes - start), LibC.AdviseWillNeed);
        return true;
    }

    private static void ReadInBlocks(int file, string path, long offset, long bytes)
    {
        var memory = stackalloc byte[BlockBytes + AlignedBuffer.Alignment];
        // Aligned, as direct I/O requires.
        var block = (byte*)(((nint)memory + AlignedBuffer.Alignment - 1) & ~(AlignedBuffer.Alignment - 1));
        for (var done = 0L; done < bytes;)
        {
            var count = LibC.Read(file, block, (nuint)Math.Min(BlockBytes, bytes - done), offset + done);
            if (count > 0)
                done += count;
            else if (count == 0)
                throw new StorageIoException("read", path, $"the file ends at offset {offset + done}");
            else if (Marshal.GetLastPInvokeError() is var error and not LibC.ErrorInterrupted)
                throw LinuxFileSystem.Failure("read", path, error);
        }
    }
}
